// Kernels that are broken, each in one way, and what is found of them.
#include "tests/ptx/support.h"

namespace gradus::ptx::test {
namespace {

// Runs a kernel with one parameter `p`, a pointer to 64 values of 4 bytes, of which the first 32
// are written; gives the error.
std::string broken(const std::string& body, Dim3 block = {64}, Dim3 grid = {1},
                   const std::string& before = "") {
  Memory memory;
  const uint64_t p = memory.allocate(256);
  const std::vector<uint32_t> values(32, 5);
  memory.write(p, values.data(), 128);
  const std::string registers =
      ".reg .pred %p, %q; .reg .b64 %rd<8>; .reg .b32 %r<16>; .reg .f32 %f<4>;\n"
      "ld.param.u64 %rd0, [p]; mov.u32 %r0, %tid.x; mov.u32 %r8, %ctaid.x;\n"
      "mad.wide.u32 %rd1, %r0, 4, %rd0;\n";
  return error_of([&] {
    run_kernel(kernel(".param .u64 p", registers + body + "\nret;", before), memory, grid, block, 0,
               p);
  });
}

// The body is a fault that says `what`, and is none with `mended` in its place.
void expect_fault(const std::string& body, const std::string& what, const std::string& mended,
                  Dim3 block = {64}, Dim3 grid = {1}, const std::string& before = "") {
  const std::string message = broken(body, block, grid, before);
  EXPECT_NE(message.find(what), std::string::npos) << body << "\n  gives: " << message;
  EXPECT_NE(message.find("ptx:"), std::string::npos) << "without its line: " << message;
  EXPECT_EQ(broken(mended, block, grid, before), "") << mended;
}

const std::string shared = ".shared .align 16 .b8 s[512];";

TEST(Faults, OutOfBounds) {
  expect_fault("st.global.u32 [%rd1+4], %r0;", "outside of what is allocated",
               "st.global.u32 [%rd1], %r0;");
  expect_fault("st.global.u32 [%rd1+-4], %r0;", "no allocation is near",
               "st.global.u32 [%rd1], %r0;");
  expect_fault("st.u32 [%rd1+4096], %r0;", "bytes behind the end of an allocation of 256",
               "st.u32 [%rd1], %r0;");
  expect_fault("mov.b64 %rd2, 0; ld.global.u32 %r1, [%rd2];", "outside of what is allocated",
               "ld.global.u32 %r1, [%rd0];");
}

TEST(Faults, OverTheEnd) {
  Memory memory;
  const uint64_t p = memory.allocate(6);
  const auto store = [&](const std::string& at) {
    return error_of([&] {
      run_kernel(kernel(".param .u64 p", ".reg .b64 %rd0; ld.param.u64 %rd0, [p]; st.global.u32 [" +
                                             at + "], 1; ret;"),
                 memory, {1}, {1}, 0, p);
    });
  };
  EXPECT_EQ(store("%rd0"), "");
  EXPECT_NE(store("%rd0+4").find("runs over the end"), std::string::npos);
}

TEST(Faults, OutOfBoundsOfSharedAndLocalMemory) {
  expect_fault("mov.u32 %r1, s; mad.lo.u32 %r1, %r0, 8, %r1; st.shared.u32 [%r1+12], %r0;",
               "leaves the block's 512 bytes",
               "mov.u32 %r1, s; mad.lo.u32 %r1, %r0, 8, %r1; st.shared.u32 [%r1+4], %r0;", {64},
               {1}, shared);
  expect_fault(".local .align 4 .b8 depot[64]; mov.b64 %rd2, depot; st.local.u32 [%rd2+64], %r0;",
               "leaves the thread's 64 bytes",
               ".local .align 4 .b8 depot[64]; mov.b64 %rd2, depot; st.local.u32 [%rd2+60], %r0;");
  expect_fault("ld.param.u64 %rd2, [p+8];", "leaves the kernel's parameters",
               "ld.param.u32 %r2, [p+4];");
}

TEST(Faults, FreedMemory) {
  Memory memory;
  const uint64_t p = memory.allocate(64);
  memory.fill(p, std::byte{1}, 64);
  memory.free(p);
  const std::string load =
      ".reg .b64 %rd0; .reg .b32 %r0; ld.param.u64 %rd0, [p];"
      "ld.global.u32 %r0, [%rd0]; ret;";
  EXPECT_NE(error_of([&] {
              run_kernel(kernel(".param .u64 p", load), memory, {1}, {1}, 0, p);
            }).find("outside of what is allocated"),
            std::string::npos);
  EXPECT_NE(error_of([&] { memory.free(p); }).find("which no allocation begins at"),
            std::string::npos);
}

TEST(Faults, Misaligned) {
  expect_fault("st.global.u32 [%rd0+2], %r0;", "is misaligned", "st.global.u32 [%rd0+4], %r0;",
               {1});
  // Each part of a vector is aligned, the vector is not.
  expect_fault("st.global.v2.u32 [%rd0+4], {%r0, %r0};", "is misaligned",
               "st.global.v2.u32 [%rd0+8], {%r0, %r0};", {1});
  expect_fault("ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd0+8];", "is misaligned",
               "ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd0+16];", {1});
}

TEST(Faults, UninitialisedGlobalMemory) {
  EXPECT_NE(broken("ld.global.u32 %r1, [%rd1];", {33}).find("which was never written"),
            std::string::npos);
  EXPECT_EQ(broken("ld.global.u32 %r1, [%rd1];", {32}), "");
}

TEST(Faults, UninitialisedSharedMemory) {
  expect_fault("ld.shared.u32 %r1, [s];", "which was never written",
               "st.shared.u32 [s], %r0; ld.shared.u32 %r1, [s];", {1}, {1}, shared);
}

TEST(Faults, UninitialisedRegisters) {
  // A copy alone decides nothing.
  EXPECT_EQ(broken("mov.u32 %r2, %r1; add.u32 %r2, %r2, 1;"), "");
  expect_fault("add.u32 %r2, %r1, 1; st.global.u32 [%rd1], %r2;", "the value that is stored",
               "add.u32 %r2, %r0, 1; st.global.u32 [%rd1], %r2;");
  expect_fault("setp.eq.u32 %p, %r1, 1; @%p bra $l; $l:", "the predicate that guards it",
               "setp.eq.u32 %p, %r0, 1; @%p bra $l; $l:");
  expect_fault("add.u64 %rd2, %rd3, %rd0; ld.global.u32 %r1, [%rd2];", "the address",
               "add.u64 %rd2, %rd0, 4; ld.global.u32 %r1, [%rd2];");
  // What is not chosen may be undefined; what is may not.
  expect_fault("setp.eq.u32 %p, %r0, 99; selp.u32 %r2, %r0, %r1, %p; st.global.u32 [%rd1], %r2;",
               "the value that is stored",
               "setp.ne.u32 %p, %r0, 99; selp.u32 %r2, %r0, %r1, %p; st.global.u32 [%rd1], %r2;");
  // Written by some lanes, read by all.
  expect_fault("setp.lt.u32 %p, %r0, 7; @%p mov.u32 %r2, 3; st.global.u32 [%rd1], %r2;",
               "thread (7, 0, 0)", "mov.u32 %r2, 3; st.global.u32 [%rd1], %r2;");
}

TEST(Faults, UndefinedValuesGoThroughLocalMemory) {
  expect_fault(
      ".local .align 8 .b8 d[8]; mov.b64 %rd2, d; ld.local.u32 %r1, [%rd2];"
      "st.global.u32 [%rd1], %r1;",
      "the value that is stored",
      ".local .align 8 .b8 d[8]; mov.b64 %rd2, d; st.local.u32 [%rd2], %r0;"
      "ld.local.u32 %r1, [%rd2]; st.global.u32 [%rd1], %r1;");
}

// Each thread writes its place and reads that of its neighbour to the right.
std::string exchange(const std::string& between, const std::string& neighbour) {
  return "mov.u32 %r1, s; mad.lo.u32 %r2, %r0, 4, %r1; st.shared.u32 [%r2], %r0;" + between +
         neighbour +
         " mad.lo.u32 %r4, %r3, 4, %r1; ld.shared.u32 %r5, [%r4];"
         "st.global.u32 [%rd1], %r5;";
}

TEST(Faults, RaceOfWarps) {
  const std::string next = "add.u32 %r3, %r0, 1; and.b32 %r3, %r3, 63;";
  expect_fault(exchange("", next), "is a data race", exchange("bar.sync 0;", next), {64}, {1},
               shared);
  EXPECT_NE(broken(exchange("", next), {64}, {1}, shared).find("wrote byte"), std::string::npos);
  // A barrier of the warp is not enough.
  const std::string before = "add.u32 %r3, %r0, 63; and.b32 %r3, %r3, 63;";
  expect_fault(
      exchange("setp.lt.u32 %p, %r0, 32; @%p bar.warp.sync -1; @!%p bar.warp.sync -1;", before),
      "which was never written", exchange("bar.sync 0;", before), {64}, {1}, shared);
  expect_fault(
      "setp.eq.u32 %p, %r0, 0; @!%p bra $e; st.shared.u32 [s], 1; $e: bar.warp.sync -1;"
      "ld.shared.u32 %r1, [s];",
      "is a data race",
      "setp.eq.u32 %p, %r0, 0; @!%p bra $e; st.shared.u32 [s], 1; $e: bar.sync 0;"
      "ld.shared.u32 %r1, [s];",
      {64}, {1}, shared);
}

TEST(Faults, RaceWithinAWarp) {
  const std::string flip = "xor.b32 %r3, %r0, 1;";
  expect_fault(exchange("", flip), "is a data race", exchange("bar.warp.sync -1;", flip), {64}, {1},
               shared);
}

TEST(Faults, RaceOfReadsWithALaterWrite) {
  // All read the first place; then its owner writes there again.
  const auto body = [](const std::string& between) {
    return "setp.eq.u32 %p, %r0, 0; @%p st.shared.u32 [s], %r0; bar.sync 0;"
           "ld.shared.u32 %r1, [s];" +
           between + "@%p st.shared.u32 [s], %r1;";
  };
  expect_fault(body(""), "read byte", body("bar.sync 0;"), {64}, {1}, shared);
}

TEST(Faults, RaceOfWritesOfOneInstruction) {
  expect_fault("st.shared.u32 [s], %r0;", "is a data race",
               "setp.eq.u32 %p, %r0, 5; @%p st.shared.u32 [s], %r0;", {32}, {1}, shared);
}

TEST(Faults, RaceOfBlocks) {
  const std::string own = "mad.wide.u32 %rd2, %r8, 128, %rd1;";
  expect_fault("st.global.u32 [%rd1], %r0;", "of another block", own + "st.global.u32 [%rd2], %r0;",
               {32}, {2});
  // Read by one block, written by the next.
  expect_fault("ld.global.u32 %r1, [%rd1]; setp.eq.u32 %p, %r8, 1; @%p st.global.u32 [%rd1], %r1;",
               "read byte", "ld.global.u32 %r1, [%rd1];", {32}, {2});
  // A barrier orders a block's own accesses to global memory.
  expect_fault("st.global.u32 [%rd1], %r0; ld.global.u32 %r1, [%rd0];", "is a data race",
               "st.global.u32 [%rd1], %r0; bar.sync 0; ld.global.u32 %r1, [%rd0];");
}

TEST(Faults, AtomicsRaceWithPlainAccessesAlone) {
  const std::string zero = "setp.eq.u32 %p, %r0, 0; @%p st.shared.u32 [s], 0;";
  expect_fault(zero + "atom.shared.add.u32 %r1, [s], 1;", "is a data race",
               zero + "bar.sync 0; atom.shared.add.u32 %r1, [s], 1; red.shared.add.u32 [s], 2;",
               {64}, {1}, shared);
  expect_fault(zero + "bar.sync 0; red.shared.add.u32 [s], 1; ld.shared.u32 %r1, [s];",
               "is a data race",
               zero + "bar.sync 0; red.shared.add.u32 [s], 1; ld.volatile.shared.u32 %r1, [s];",
               {64}, {1}, shared);
}

TEST(Faults, LaunchesAreOrdered) {
  Memory memory;
  const uint64_t p = memory.allocate(128);
  const std::string store = kernel(".param .u64 p",
                                   ".reg .b64 %rd<2>; .reg .b32 %r0; ld.param.u64 %rd0, [p];"
                                   "mov.u32 %r0, %tid.x; mad.wide.u32 %rd1, %r0, 4, %rd0;"
                                   "st.global.u32 [%rd1], %r0; ret;");
  const Module m = Module::parse(store);
  Launch l;
  l.block.x = 32;
  l.args = {&p};
  launch(m, "k", l, memory);
  launch(m, "k", l, memory);
  EXPECT_EQ(download<uint32_t>(memory, p, 32)[31], 31u);
}

TEST(Faults, LoadsThroughTheReadOnlyPath) {
  expect_fault("st.global.u32 [%rd1], %r0; ld.global.nc.u32 %r1, [%rd1];", "this launch wrote",
               "st.global.u32 [%rd1], %r0; ld.global.u32 %r1, [%rd1];");
}

TEST(Faults, ConstantMemory) {
  const std::string table = ".const .align 4 .u32 t[2] = {3, 4}; .global .align 4 .u32 g = 9;";
  expect_fault("mov.b64 %rd2, t; st.u32 [%rd2], %r0;", "writes what is constant",
               "ld.const.u32 %r1, [t+4]; ld.global.u32 %r2, [g];", {1}, {1}, table);
  expect_fault("mov.b64 %rd2, t; ld.global.u32 %r1, [%rd2];", "is in constant memory",
               "mov.b64 %rd2, t; ld.u32 %r1, [%rd2];", {1}, {1}, table);
  expect_fault("ld.const.u32 %r1, [%rd0];", "is not in constant memory",
               "mov.b64 %rd2, t; ld.const.u32 %r1, [%rd2];", {1}, {1}, table);
}

TEST(Faults, DivergentBarrier) {
  const std::string half = "setp.lt.u32 %p, %r0, 16; ";
  // Within a warp, one lane in the barrier, the others past it.
  expect_fault(half + "@%p bra $in; bra $out; $in: bar.sync 0; $out:", "divergent barrier",
               half + "@%p bra $in; bra $out; $in: add.u32 %r1, %r0, 1; $out: bar.sync 0;");
  // Between warps: one leaves.
  expect_fault("setp.ge.u32 %p, %r0, 32; @%p ret; bar.sync 0;", "have exited",
               "bar.sync 0; setp.ge.u32 %p, %r0, 32; @%p ret;");
  // Between warps: two barriers.
  expect_fault("setp.ge.u32 %p, %r0, 32; @%p bra $b; bar.sync 0; bra $e; $b: bar.sync 0; $e:",
               "waits at the barrier of line", "bar.sync 0;");
  expect_fault(half + "@%p bar.sync 0;", "divergent barrier", "bar.sync 0;");
}

TEST(Faults, ShuffleWithAbsentLanes) {
  const auto shuffle = [](const std::string& mask) {
    return "shfl.sync.down.b32 %r1, %r0, 1, 31, " + mask + ";";
  };
  const std::string half = "setp.ge.u32 %p, %r0, 16; ";
  // Lanes that have exited, that were never there, and that went another way.
  expect_fault(half + "@%p ret;" + shuffle("-1"), "have exited",
               half + "@%p ret;" + shuffle("65535"), {32});
  expect_fault(shuffle("-1"), "have no thread", shuffle("65535"), {16});
  expect_fault(half + "@%p bra $b;" + shuffle("-1") + "$b:", "0xffff0000 have exited",
               half + "@%p bra $b;" + shuffle("65535") + "$b:", {32});
  expect_fault(half + "@%p bra $b;" + shuffle("-1") + "bra $e; $b: bar.warp.sync -1; $e:",
               "waits for lanes", half + "@%p bra $b; $b:" + shuffle("-1"), {32});
  expect_fault(shuffle("2"), "lacks the lane itself", shuffle("-1"), {32});
}

TEST(Faults, ShuffleFromALaneOutsideOfItsMask) {
  // What comes from there is undefined; only using it is a fault.
  const auto body = [](const std::string& by, const std::string& after) {
    return "setp.ge.u32 %p, %r0, 16; @%p bra $e; shfl.sync.bfly.b32 %r1, %r0, " + by +
           ", 31, 65535;" + after + "$e:";
  };
  const std::string store = "st.global.u32 [%rd1], %r1;";
  expect_fault(body("16", store), "the value that is stored", body("8", store), {32});
  EXPECT_EQ(broken(body("16", "add.u32 %r1, %r1, 1;"), {32}), "");
}

TEST(Faults, DivisionByZero) {
  expect_fault("div.u32 %r1, 7, %r0;", "by zero", "add.u32 %r1, %r0, 1; div.u32 %r1, 7, %r1;");
  expect_fault("rem.s32 %r1, 7, %r0;", "by zero", "add.u32 %r1, %r0, 1; rem.s32 %r1, 7, %r1;");
}

TEST(Faults, TrapsAndEndlessLoops) {
  expect_fault("setp.eq.u32 %p, %r0, 3; @%p trap;", "thread (3, 0, 0)",
               "setp.eq.u32 %p, %r0, 99; @%p trap;");
  Memory memory;
  Launch l;
  l.max_steps = 10000;
  const Module loop = Module::parse(kernel("", "$l: bra $l;"));
  EXPECT_NE(error_of([&] { launch(loop, "k", l, memory); }).find("may have no end"),
            std::string::npos);
}

TEST(Faults, ApproximationsAreAskedFor) {
  const std::string ptx = kernel("",
                                 ".reg .f32 %f<2>; mov.f32 %f0, 0f40000000;\n"
                                 "ex2.approx.ftz.f32 %f1, %f0;\nret;");
  Memory memory;
  Launch l;
  const std::string message = error_of([&] { launch(Module::parse(ptx), "k", l, memory); });
  EXPECT_NE(message.find("without an exact result"), std::string::npos) << message;
  EXPECT_NE(message.find("ex2.approx.ftz.f32"), std::string::npos) << message;
  l.allow_approximate = true;
  EXPECT_EQ(error_of([&] { launch(Module::parse(ptx), "k", l, memory); }), "");
}

TEST(Faults, NameTheSourceLine) {
  const std::string message =
      broken("$l:\n.loc 1 17 3\nst.global.u32 [%rd0+1], %r0;", {1}, {1}, ".file 1 \"kernel.cu\"");
  EXPECT_NE(message.find("kernel.cu:17"), std::string::npos) << message;
  EXPECT_NE(message.find("st.global.u32 [%rd0+1], %r0;"), std::string::npos) << message;
  EXPECT_NE(message.find("block (0, 0, 0), thread (0, 0, 0)"), std::string::npos) << message;
}

TEST(Faults, Launches) {
  const Module m = Module::parse(kernel(".param .u32 n", "ret;", shared) +
                                 ".entry big() .reqntid 32 { ret; }\n");
  Memory memory;
  const auto fails = [&](const char* name, Launch l) {
    return error_of([&] { launch(m, name, l, memory); });
  };
  const uint32_t n = 1;
  Launch l;
  EXPECT_NE(fails("k", l).find("1 parameters, and 0 are given"), std::string::npos);
  l.args = {&n};
  EXPECT_EQ(fails("k", l), "");
  EXPECT_NE(fails("nobody", l).find("it has k big"), std::string::npos);
  l.block.x = 2048;
  EXPECT_NE(fails("k", l).find("too large"), std::string::npos);
  l.block.x = 1;
  l.shared_bytes = 1 << 20;
  EXPECT_NE(fails("k", l).find("shared memory"), std::string::npos);
  EXPECT_NE(fails("big", Launch{}).find("32 x 1 x 1 threads alone"), std::string::npos);
}

TEST(Memory, HostAccessesAreChecked) {
  Memory memory;
  const uint64_t p = memory.allocate(16);
  uint32_t x = 1;
  EXPECT_NE(error_of([&] { memory.read(&x, p, 4); }).find("never written"), std::string::npos);
  memory.read(&x, p, 4, Memory::Undefined::zero);
  EXPECT_EQ(x, 0u);
  EXPECT_NE(error_of([&] { memory.write(p + 14, &x, 4); }).find("leaves allocated memory"),
            std::string::npos);
  memory.write(p, &x, 4);
  memory.read(&x, p, 4);
  const uint64_t q = memory.allocate(16);
  memory.copy(q, p, 8);
  memory.read(&x, q, 4);
  EXPECT_NE(error_of([&] { memory.read(&x, q + 4, 4); }), "");
  memory.forget(q, 4);
  EXPECT_NE(error_of([&] { memory.read(&x, q, 4); }), "");
  EXPECT_NE(error_of([&] { memory.allocate(1, 3); }).find("power of two"), std::string::npos);
}

}  // namespace
}  // namespace gradus::ptx::test
