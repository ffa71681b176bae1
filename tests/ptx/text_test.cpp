// What is no PTX, or none that the interpreter knows: refused with its line, and never a crash.
#include "tests/ptx/support.h"

namespace gradus::ptx::test {
namespace {

std::string refused(const std::string& ptx) {
  return error_of([&] { Module::parse(ptx); });
}

void expect_refused(const std::string& code, const std::string& what) {
  const std::string message = refused(kernel(".param .u64 p",
                                             ".reg .b32 %r<4>; .reg .b64 %rd<4>;"
                                             ".reg .pred %p; .reg .f32 %f<4>;\n" +
                                                 code));
  EXPECT_NE(message.find(what), std::string::npos) << code << "\n  gives: " << message;
  EXPECT_NE(message.find("ptx:8"), std::string::npos) << message;
}

TEST(Text, UnknownInstructionsAreNamed) {
  expect_refused("wgmma.fence.sync.aligned;", "knows no instruction wgmma.fence.sync.aligned");
  expect_refused("tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [p, {%f0, %f1}];",
                 "knows no instruction tex.2d.v4.f32.f32");
  expect_refused("add.f16x4 %r0, %r1, %r2;", "no .f16x4 here");
  expect_refused("add.fancy.u32 %r0, %r1, %r2;", "no .fancy here");
  expect_refused("ld.global.fancy.u32 %r0, [%rd0];", "no .fancy here");
  expect_refused("shfl.down.b32 %r0, %r1, 1, 31;", "without .sync");
  expect_refused("mul.u32 %r0, %r1, %r2;", "expected one of .lo, .hi, .wide");
}

TEST(Text, OperandsFitTheirInstruction) {
  expect_refused("add.u64 %rd0, %r1, %rd2;", "%r1 has 32 bits, and .u64 is expected");
  expect_refused("add.u32 %r0, %r1;", "too few operands");
  expect_refused("add.u32 %r0, %r1, %r2, %r3;", "too many operands");
  expect_refused("add.u32 %r0, %r1, %r9;", "there is no %r9");
  expect_refused("add.u32 3, %r1, %r2;", "its result is no register");
  expect_refused("@%r0 ret;", "is no predicate");
  expect_refused("setp.ltu.s32 %p, %r0, %r1;", "the comparison is not for its type");
  expect_refused("ld.shared.u64 %rd0, [p];", "p is .param memory");
  expect_refused("ld.global.v4.u64 {%rd0, %rd1, %rd2, %rd3}, [%rd0];", "16 bytes at most");
  expect_refused("ld.global.v2.u32 {%r0}, [%rd0];", "expects 2 registers in braces");
  expect_refused("mov.b64 %rd0, {%r0, %rd1};", "do not make up its type");
  expect_refused("call f;", "no function that was declared");
  expect_refused("bra $nowhere;", "there is no label $nowhere");
}

TEST(Text, Declarations) {
  EXPECT_NE(refused(".entry k() { .reg .b32 %r, %r; }").find("declared twice"), std::string::npos);
  EXPECT_NE(refused(".entry k() { .reg .b128 %r; }").find("no registers of .b128"),
            std::string::npos);
  EXPECT_NE(refused(".entry k() { ret; } .entry k() { ret; }").find("defined twice"),
            std::string::npos);
  EXPECT_NE(refused(".entry k() { ret;").find("and the text ends"), std::string::npos);
  EXPECT_NE(refused(".extern .global .u32 x;").find("defined elsewhere"), std::string::npos);
  EXPECT_NE(refused(".global .u32 x[2] = {1, 2, 3};").find("more initial values"),
            std::string::npos);
  EXPECT_NE(refused("hello").find("expected a directive"), std::string::npos);
  EXPECT_NE(refused("/* never closed").find("is not closed"), std::string::npos);
  EXPECT_EQ(refused(""), "");
}

TEST(Text, ScopesHideNames) {
  // %r in braces is another register, and each pair of braces has labels of its own.
  const std::vector<uint32_t> one{1};
  EXPECT_EQ(each<uint32_t>("mov.u32 %t0, 5; { .reg .b32 %t0; mov.u32 %t0, 7; bra $l; $l: }"
                           "{ bra $l; $l: } mov.u32 %d, %t0;",
                           one)[0],
            5u);
}

const std::string sample = R"(
.version 8.8
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.const .align 4 .u32 table[4] = {1, 2, 3, 4};
.func (.param .b32 result) twice(.param .b32 a)
{ .reg .b32 %r<3>; ld.param.b32 %r0, [a]; shl.b32 %r1, %r0, 1; st.param.b32 [result], %r1; ret; }
.visible .entry k(.param .u64 p, .param .u32 n) .maxntid 64, 1, 1
{
  .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<6>; .reg .f32 %f<6>; .reg .f64 %fd<4>;
  .local .align 8 .b8 depot[32]; .shared .align 4 .b8 own[256];
  ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x;
  setp.ge.s32 %p1, %r2, %r1; @%p1 bra $end;
  mul.wide.s32 %rd2, %r2, 4; add.s64 %rd3, %rd1, %rd2; ld.global.f32 %f1, [%rd3];
  fma.rn.f32 %f2, %f1, %f1, 0f3F800000; cvt.f64.f32 %fd1, %f2; cvt.rn.f32.f64 %f3, %fd1;
  mov.u32 %r3, own; mad.lo.u32 %r4, %r2, 4, %r3; st.shared.f32 [%r4], %f3;
  shfl.sync.bfly.b32 %r5|%p2, %r2, 1, 31, -1; lop3.b32 %r6, %r5, %r2, %r1, 0x96;
  mov.b64 %rd4, depot; st.local.v2.u32 [%rd4], {%r5, %r6}; ld.local.u32 %r7, [%rd4+4];
  { .param .b32 x; .param .b32 y; st.param.b32 [x], %r7; call (y), twice, (x);
    ld.param.b32 %r8, [y]; }
$loop: add.u32 %r8, %r8, 1; and.b32 %r9, %r8, 7; setp.ne.u32 %p3, %r9, 0; @%p3 bra $loop;
  ld.const.u32 %r10, [table+4]; add.u32 %r8, %r8, %r10; cvt.rn.f32.u32 %f4, %r8;
  ld.shared.f32 %f5, [%r4]; add.f32 %f4, %f4, %f5; st.global.f32 [%rd3], %f4;
$end: ret;
}
)";

// Parses and runs; what is thrown has to be an Error.
void try_to_run(const std::string& ptx) {
  try {
    const Module m = Module::parse(ptx);
    for (const auto& name : m.kernels()) {
      Memory memory;
      const uint64_t p = memory.allocate(256);
      memory.fill(p, std::byte{0}, 256);
      const std::vector<uint64_t> argument{p, 32, 0, 0, 0, 0, 0, 0};
      Launch l;
      l.block.x = 32;
      l.shared_bytes = 64;
      l.max_steps = 5000;
      l.allow_approximate = true;
      bool small = true;
      for (const size_t bytes : m.parameter_sizes(name)) small &= bytes <= 64;
      if (!small) continue;
      l.args.assign(m.parameter_sizes(name).size(), argument.data());
      if (l.args.size() > 1) l.args[1] = &argument[1];
      launch(m, name, l, memory);
    }
  } catch (const Error&) {
  }
}

TEST(Text, TheSampleRuns) {
  Memory memory;
  const uint64_t p = memory.allocate(128);
  memory.fill(p, std::byte{0}, 128);
  const uint32_t n = 32;
  EXPECT_EQ(error_of([&] { run_kernel(sample, memory, {1}, {32}, 64, p, n); }), "");
}

TEST(Text, BrokenTextsNeverCrash) {
  std::mt19937 random(11);
  const std::string alphabet = "0123456789abcdefrpu%$.,;:{}()[]<>@!|+-=_ \n\"/*";
  std::vector<std::string> words;
  for (size_t i = 0; i < sample.size();) {
    const size_t end = std::min(sample.find_first_of(" ,;\n", i), sample.size() - 1);
    if (end > i) words.push_back(sample.substr(i, end - i));
    i = end + 1;
  }
  for (int round = 0; round < 3000; ++round) {
    std::string ptx = sample;
    for (unsigned k = random() % 4 + 1; k > 0; --k) {
      const size_t at = random() % ptx.size();
      switch (random() % 6) {
        case 0:
          ptx[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          ptx.erase(at, random() % 12);
          break;
        case 2:
          ptx.insert(at, 1, alphabet[random() % alphabet.size()]);
          break;
        case 3:
          ptx.resize(std::max<size_t>(at, 1));
          break;
        default: {  // one word in the place of another
          const std::string& from = words[random() % words.size()];
          const size_t found = ptx.find(from, at);
          if (found != std::string::npos)
            ptx.replace(found, from.size(), words[random() % words.size()]);
        }
      }
    }
    try_to_run(ptx);
  }
}

}  // namespace
}  // namespace gradus::ptx::test
