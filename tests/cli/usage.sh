# Exit codes and messages of what is no program and no command.
. "$GRADUS_SOURCE_DIR/tests/cli/lib.bash"

refuses 2 'error: A subcommand is required'
refuses 2 'gradus frobnicate: there is no such command' frobnicate
says err 'Run gradus --help'
refuses 2 "gradus rnu: there is no such command; did you mean 'run'?" rnu p.ir
refuses 2 "gradus --versoin: there is no such option; did you mean '--version'?" --versoin
refuses 2 "gradus run --rando: there is no such option; did you mean '--random'?" run p.ir --rando 1
says err 'Run gradus run --help'
refuses 2 "gradus run --plugn: there is no such option; did you mean '--plugin'?" run p.ir --plugn a
refuses 2 "gradus grad --ordr: there is no such option; did you mean '--order'?" grad p.ir --ordr 1
refuses 2 'gradus run other.ir: it belongs to no option' run p.ir other.ir
refuses 2 '--order is required' grad p.ir
refuses 2 'PROGRAM is required' run
refuses 2 '--bogus' run p.ir --bogus
refuses 2 '--order' grad p.ir --order -1
refuses 2 '--order' grad p.ir --order x
refuses 2 '--cutoff' check-potential p.ir --cutoff -1
refuses 2 '--spacing' check-potential p.ir --spacing inf
refuses 2 '--repeat' run p.ir --repeat 0
refuses 2 '--random' run p.ir --random -1
refuses 2 '--random' run p.ir --random 1.5
refuses 2 '--random' run p.ir --random 99999999999999999999999
refuses 2 '--engine' run p.ir --engine steam
refuses 2 '--device gpu is no device' run p.ir --device gpu
refuses 2 'excludes' ops --markdown --json
# Values of options say what is expected in their place.
refuses 2 "--repeat: expected a whole number from 1 to 2147483647, found 'x'" run p.ir --repeat x
refuses 2 "--stages: expected a whole number from 1 to 2147483647, found '0'" run p.ir --stages 0
refuses 2 '--threads: expected a whole number from 0 to 1024, found' run p.ir --threads 1.5
refuses 2 "--fusion: 'frist' is none of off, behind, first; did you mean 'first'?" run p.ir --fusion frist
refuses 2 "--dump-after: 'all' is none of memory" disasm p.ir --dump-after all
refuses 2 'PROGRAM: the name of the file is empty' verify ''
refuses 2 '--inputs: the name of the file is empty' run p.ir --inputs ''
refuses 2 '--plugin: the name of the file is empty' ops --plugin ''
for command in run grad gradcheck check-potential verify print disasm ops devices import check-onnx; do
  runs 0 $command --help
  says out "$command"
done
runs 0 --help
says out run gradcheck 'Exit status'
runs 0 --version
is "$(cut -d' ' -f1 out)" gradus

# Devices that are none, and devices without kernels.
refuses 2 '--device cuda: is no device' run p.ir --device cuda:
refuses 2 '--device cuda:0x is no device' run p.ir --device cuda:0x
refuses 2 'leave out --fusion off' run p.ir --device cuda:0 --fusion off
refuses 2 'leave out --fusion off' run p.ir --device cuda:0 --engine interpret
echo 'graph p { stage 0 () { return } }' >p.ir
refuses 2 '--atomics is about a device' run p.ir --atomics
# Where there is no driver, it is named.
runs 0 devices
says out "NVIDIA's driver" NVRTC cuBLASLt cuDNN NCCL
if grep -q 'no CUDA device' out; then
  refuses 1 'cuda:0 cannot be used: ' run p.ir --device cuda:0
  echo 'graph p { stage 0 (%x: f32[2]@cuda:0) { return %x } }' >typed.ir
  refuses 1 'cuda:0 cannot be used: ' run typed.ir --random 1
  refuses 1 'cuda:0 cannot be used: ' run typed.ir --random 1 --atomics
fi
if grep -q 'driver was not found' out; then
  refuses 1 'libcuda.so.1' run p.ir --device cuda:0
fi
refuses 1 'w.safetensors: cannot be read' run p.ir --weights w.safetensors
refuses 1 'mine.so: cannot be read' ops --plugin mine.so
cp p.ir text.so
refuses 1 'text.so: cannot be loaded' ops --plugin text.so
refuses 2 '--repeat begins every round at stage 0' run p.ir --resume s.state --repeat 2

# Programs that are none.
refuses 1 'nothing.ir: ' verify nothing.ir
mkdir folder.ir
refuses 1 'folder.ir: ' verify folder.ir
: >empty.ir
refuses 1 'empty.ir' verify empty.ir
head -c 4096 /dev/urandom >noise.ir
refuses 1 'noise.ir' verify noise.ir
head -c 4096 /dev/zero >zeros.ir
refuses 1 'zeros.ir' verify zeros.ir
sed 's/ () { return }/ (%x: f64[2]) { %y = mul(%x, %x) return %y }/' p.ir >square.ir
cp p.ir named_otherwise
runs 0 verify named_otherwise
for file in empty noise zeros; do
  cp "$file.ir" "$file"
  refuses 1 "$file: is no program by its name or its content; what can be read is" verify "$file"
  says err 'a program text (.ir)' 'an ONNX model (.onnx)'
done
printf 'graph p {\n  stage 0 (%%x: f64[2]) {\n    %%y = mull(%%x, %%x)\n    return %%y\n  }\n}\n' >typo.ir
for command in verify print disasm 'grad --order 1' gradcheck 'run --random 1'; do
  refuses 1 'typo.ir:3:10: error: ' $command typo.ir
  says err "'mul'" '    %y = mull(%x, %x)' '         ^'
done

refuses 1 'its floating inputs are: x' jvp square.ir --wrt z
refuses 1 'its floating inputs are: x' grad square.ir --order 1 --wrt z

# Files of tensors that are none.
runs 0 run p.ir
refuses 1 'nothing.npz: ' run p.ir --inputs nothing.npz
refuses 1 'folder.ir: ' run p.ir --inputs folder.ir
refuses 1 'empty.ir: ' run p.ir --inputs empty.ir
refuses 1 'noise.ir: ' run p.ir --inputs noise.ir
refuses 1 'noise.ir: ' gradcheck p.ir --inputs noise.ir
refuses 1 'nothing.npz: ' run p.ir --weights nothing.npz
# A file name may hold anything.
cp p.ir 'strange name
[31m.ir'
runs 0 verify 'strange name
[31m.ir'
# Files are named once or often; an empty word is not an option that was left out.
cat >n.ir <<'EOF'
graph n {
  stage 0 (%x: f64[N]) {
    %y = neg(%x)
    return x = %y
  }
}
EOF
runs 0 run n.ir --random 1 --set N=3 --outputs a.npz
runs 0 run n.ir --inputs=a.npz a.npz --set=N=3
for option in --outputs --save-state --resume --profile --kernels --weights --device; do
  refuses 2 "$option: its value is empty" run n.ir --random 1 --set N=3 "$option" ''
done
refuses 2 '--outputs is given more than once' run p.ir --outputs a.npz --outputs b.npz
refuses 2 '--threads lacks its value' run p.ir --threads
refuses 2 "--cutoff: expected a number, found 'x'" check-potential p.ir --cutoff x
refuses 2 'from 0 to 2^64 - 1' check-potential p.ir --random -1
refuses 2 'leave --written out' view n.ir --written --set N=3
finish
