// Functions, tables, variables, addresses, atomics: what programs are made of.
#include "tests/ptx/support.h"

namespace gradus::ptx::test {
namespace {

using u32 = uint32_t;
using u64 = uint64_t;

// Thread i of 64 finds i in %r0 and leaves %r1; `before` stands in front of the kernel.
std::vector<u32> in_threads(const std::string& code, const std::string& before = "") {
  Memory memory;
  const u64 out = memory.allocate(256);
  run_kernel(kernel(".param .u64 out",
                    ".reg .pred %p; .reg .b64 %rd<8>; .reg .b32 %r<16>; .reg .f64 %fd<4>;\n"
                    "mov.u32 %r0, %tid.x;\n" +
                        code +
                        "\nld.param.u64 %rd0, [out]; mad.wide.u32 %rd0, %r0, 4, %rd0;\n"
                        "st.global.u32 [%rd0], %r1; ret;",
                    before),
             memory, {1}, {64}, 0, out);
  return download<u32>(memory, out, 64);
}

template <class F>
void expect_threads(const std::string& code, F f, const std::string& before = "") {
  const auto r = in_threads(code, before);
  for (u32 i = 0; i < 64; ++i) EXPECT_EQ(r[i], f(i)) << "thread " << i;
}

const std::string call = R"({ .param .b32 a; .param .b32 result;
    st.param.b32 [a], %r0; call.uni (result), f, (a); ld.param.b32 %r1, [result]; })";

TEST(Program, CallsFunctions) {
  expect_threads(
      call, [](u32 i) { return i * 3 + 1; }, R"(
.func (.param .b32 result) f(.param .b32 a)
{ .reg .b32 %r<2>; ld.param.b32 %r0, [a]; mad.lo.u32 %r1, %r0, 3, 1; st.param.b32 [result], %r1;
  ret; })");
}

TEST(Program, CallsItself) {
  // Fibonacci numbers of i mod 10: lanes are in calls of different depth.
  expect_threads(
      "rem.u32 %r0, %r0, 10;" + call + "mov.u32 %r0, %tid.x;",
      [](u32 i) {
        u32 a = 0, b = 1;
        for (u32 k = 0; k < i % 10; ++k) b += a, a = b - a;
        return a;
      },
      R"(
.func (.param .b32 result) f(.param .b32 a);
.func (.param .b32 result) f(.param .b32 a)
{
  .reg .pred %p; .reg .b32 %r<5>;
  .local .align 4 .b8 kept[4]; .reg .b64 %rd0; mov.b64 %rd0, kept;
  ld.param.b32 %r0, [a]; mov.u32 %r1, %r0; st.local.u32 [%rd0], %r0;
  setp.lt.u32 %p, %r0, 2; @%p bra $end;
  sub.u32 %r2, %r0, 1;
  { .param .b32 x; .param .b32 y; st.param.b32 [x], %r2; call (y), f, (x); ld.param.b32 %r3, [y]; }
  ld.local.u32 %r0, [%rd0]; sub.u32 %r2, %r0, 2;
  { .param .b32 x; .param .b32 y; st.param.b32 [x], %r2; call (y), f, (x); ld.param.b32 %r4, [y]; }
  add.u32 %r1, %r3, %r4;
$end: st.param.b32 [result], %r1; ret;
})");
}

TEST(Program, CallsWithStructures) {
  expect_threads(R"({ .param .align 8 .b8 a[16]; .param .align 8 .b8 result[16];
    cvt.u64.u32 %rd1, %r0; st.param.b64 [a], %rd1; st.param.v2.b32 [a+8], {%r0, 7};
    call (result), swap, (a);
    ld.param.v2.b32 {%r2, %r3}, [result]; ld.param.b64 %rd2, [result+8]; }
    cvt.u32.u64 %r1, %rd2; mad.lo.u32 %r1, %r1, 100, %r3;)",
                 [](u32 i) { return i * 100 + 7; }, R"(
.func (.param .align 8 .b8 result[16]) swap(.param .align 8 .b8 a[16])
{ .reg .b64 %rd<2>; ld.param.b64 %rd0, [a]; ld.param.b64 %rd1, [a+8];
  st.param.b64 [result], %rd1; st.param.b64 [result+8], %rd0; ret; })");
}

TEST(Program, CallsByALambdaOfLanesAreOneEach) {
  // Only odd threads call; the others keep their value.
  expect_threads(
      "mov.u32 %r1, 5; and.b32 %r2, %r0, 1; setp.eq.u32 %p, %r2, 0; @%p bra $past;" + call +
          "$past:",
      [](u32 i) { return i % 2 ? i + 1 : 5; }, R"(
.func (.param .b32 result) f(.param .b32 a)
{ .reg .b32 %r0; ld.param.b32 %r0, [a]; add.u32 %r0, %r0, 1; st.param.b32 [result], %r0; ret; })");
}

TEST(Program, BranchesByTables) {
  expect_threads(R"(
    rem.u32 %r2, %r0, 3; $t: .branchtargets $a, $b, $c; brx.idx %r2, $t;
$a: mov.u32 %r1, 10; bra $end;
$b: mov.u32 %r1, 20; bra $end;
$c: mov.u32 %r1, 30;
$end: activemask.b32 %r3; setp.ne.u32 %p, %r3, -1; @%p mov.u32 %r1, 0;)",
                 [](u32 i) { return 10 * (i % 3) + 10; });
}

TEST(Program, LocalMemoryIsTheThreadsOwn) {
  expect_threads(R"(
    .local .align 8 .b8 depot[32]; .reg .b64 %SP, %SPL; mov.b64 %SPL, depot;
    cvta.local.u64 %SP, %SPL; mov.u32 %r2, 0;
$fill: mul.wide.u32 %rd1, %r2, 4; add.u64 %rd2, %SPL, %rd1; mul.lo.u32 %r3, %r2, %r0;
    st.local.u32 [%rd2], %r3; add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, 8; @%p bra $fill;
    and.b32 %r4, %r0, 7; mul.wide.u32 %rd1, %r4, 4; add.u64 %rd2, %SP, %rd1; ld.u32 %r1, [%rd2];)",
                 [](u32 i) { return i * (i % 8); });
}

TEST(Program, GlobalAndConstantVariables) {
  const std::string variables = R"(
.const .align 4 .b8 table[16] = {1, 0, 0, 0, 255, 255, 255, 255, 7};
.global .align 8 .f64 scale = 0d4004000000000000;
.global .align 4 .u32 numbers[3] = {5, 6};
.global .align 8 .u64 place = numbers;
.global .align 8 .u64 further = generic(numbers)+4;
)";
  expect_threads(
      "ld.const.u32 %r1, [table+4];", [](u32) { return ~0u; }, variables);
  expect_threads(
      "ld.const.s8 %r1, [table+4];", [](u32) { return ~0u; }, variables);
  expect_threads(
      "ld.const.u32 %r1, [table+8];", [](u32) { return 7u; }, variables);
  expect_threads(
      "ld.const.u32 %r1, [table+12];", [](u32) { return 0u; }, variables);
  expect_threads(
      "ld.global.f64 %fd0, [scale]; cvt.rzi.u32.f64 %r1, %fd0;", [](u32) { return 2u; }, variables);
  expect_threads(
      "ld.global.u64 %rd1, [place]; ld.global.u32 %r1, [%rd1+4];", [](u32) { return 6u; },
      variables);
  expect_threads(
      "ld.global.u64 %rd1, [further]; ld.u32 %r1, [%rd1+4];", [](u32) { return 0u; }, variables);
  expect_threads(
      "mov.u64 %rd1, numbers+4; ld.global.u32 %r1, [%rd1];", [](u32) { return 6u; }, variables);
}

TEST(Program, SpecialRegisters) {
  Memory memory;
  const u64 out = memory.allocate(4 * 2 * 3 * 4 * 16);
  run_kernel(kernel(".param .u64 out", R"(
    .reg .b64 %rd<2>; .reg .b32 %r<16>;
    mov.u32 %r0, %ctaid.y; mov.u32 %r1, %nctaid.x; mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r0, %r0, %r1, %r2;
    mov.u32 %r1, %ntid.z; mov.u32 %r2, %tid.z; mad.lo.u32 %r0, %r0, %r1, %r2;
    mov.u32 %r1, %ntid.y; mov.u32 %r2, %tid.y; mad.lo.u32 %r0, %r0, %r1, %r2;
    mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r0, %r0, %r1, %r2;
    ld.param.u64 %rd0, [out]; mad.wide.u32 %rd1, %r0, 4, %rd0;
    mov.u32 %r3, %laneid; mov.u32 %r4, %warpid; mov.u32 %r5, %lanemask_lt; popc.b32 %r5, %r5;
    setp_free: sub.u32 %r5, %r5, %r3; mad.lo.u32 %r3, %r4, WARP_SZ, %r3; add.u32 %r3, %r3, %r5;
    st.global.u32 [%rd1], %r3; ret;)"),
             memory, {2, 3}, {4, 4, 3}, 0, out);
  const auto r = download<u32>(memory, out, 2 * 3 * 48);
  for (u32 i = 0; i < r.size(); ++i) EXPECT_EQ(r[i], i % 48);
}

TEST(Program, VectorsOfMemory) {
  Memory memory;
  std::vector<u32> values(256);
  for (u32 i = 0; i < 256; ++i) values[i] = i * 0x01010101u;
  const u64 p = upload(memory, values);
  run_kernel(kernel(".param .u64 p", R"(
    .reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .b16 %h<4>;
    mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p]; mad.wide.u32 %rd0, %r0, 16, %rd0;
    ld.global.L1::no_allocate.L2::128B.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0];
    st.global.cs.v4.b32 [%rd0], {%r4, %r3, %r2, %r1};
    ld.global.v2.b64 {%rd1, %rd2}, [%rd0]; st.global.v2.b64 [%rd0], {%rd2, %rd1};
    ld.global.v4.u8 {%h0, %h1, %h2, _}, [%rd0]; add.u16 %h0, %h0, %h2;
    st.global.u8 [%rd0], %h0; ret;)"),
             memory, {1}, {64}, 0, p);
  const auto r = download<u32>(memory, p, 256);
  for (u32 i = 0; i < 64; ++i) {
    const u32 first = values[4 * i + 1], low = first & 255;
    EXPECT_EQ(r[4 * i], (first & ~255u) | (2 * low & 255)) << i;
    EXPECT_EQ(r[4 * i + 1], values[4 * i]);
    EXPECT_EQ(r[4 * i + 2], values[4 * i + 3]);
    EXPECT_EQ(r[4 * i + 3], values[4 * i + 2]);
  }
}

TEST(Program, SmallLoadsExtend) {
  Memory memory;
  const u64 p = upload(memory, std::vector<int8_t>{-2, 0, 0, 0, -3, -1, 0, 0});
  const u64 out = memory.allocate(16);
  run_kernel(kernel(".param .u64 p, .param .u64 out", R"(
    .reg .b64 %rd<3>; .reg .b32 %r<4>; ld.param.u64 %rd0, [p]; ld.param.u64 %rd1, [out];
    ld.global.s8 %r0, [%rd0]; ld.global.u8 %r1, [%rd0]; ld.global.s16 %r2, [%rd0+4];
    ld.global.nc.s8 %rd2, [%rd0]; cvt.u32.u64 %r3, %rd2; shr.u64 %rd2, %rd2, 32;
    st.global.v4.u32 [%rd1], {%r0, %r1, %r2, %r3}; ret;)"),
             memory, {1}, {1}, 0, p, out);
  EXPECT_EQ(download<u32>(memory, out, 4), (std::vector<u32>{~1u, 254, ~2u, ~1u}));
}

TEST(Program, KernelParametersOfAllKinds) {
  struct Sizes {
    u64 rows;
    u32 steps[3];
    uint16_t small;
  } sizes{7, {1, 2, 3}, 9};
  Memory memory;
  const u64 out = memory.allocate(24);
  const uint8_t byte = 200;
  const double number = 2.5;
  run_kernel(kernel(".param .u8 byte, .param .align 8 .b8 sizes[24], .param .f64 number,"
                    ".param .u64 .ptr .global .align 8 out",
                    R"(
    .reg .b64 %rd<6>; .reg .b32 %r<6>; .reg .b16 %h<2>; .reg .f64 %fd0; .reg .pred %p;
    ld.param.u64 %rd0, [out]; ld.param.u8 %h0, [byte]; cvt.u32.u16 %r0, %h0;
    ld.param.u32 %r1, [sizes+12]; ld.param.u16 %r2, [sizes+20]; ld.param.f64 %fd0, [number];
    cvt.rni.u32.f64 %r3, %fd0; st.global.v4.u32 [%rd0], {%r0, %r1, %r2, %r3};
    mov.b64 %rd1, sizes; cvta.param.u64 %rd2, %rd1; ld.u64 %rd3, [%rd2];
    ld.param.u32 %r4, [%rd1+16]; isspacep.global %p, %rd0; selp.u32 %r5, %r4, 0, %p;
    cvt.u32.u64 %r4, %rd3; st.global.v2.u32 [%rd0+16], {%r4, %r5}; ret;)"),
             memory, {1}, {1}, 0, byte, sizes, number, out);
  EXPECT_EQ(download<u32>(memory, out, 6), (std::vector<u32>{200, 2, 9, 2, 7, 3}));
}

TEST(Program, Atomics) {
  Memory memory;
  const auto check = [&](const std::string& code, auto start, auto expected) {
    const u64 p = upload(memory, std::vector{start});
    run_kernel(
        kernel(
            ".param .u64 p",
            ".reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .b16 %h<4>; .reg .f32 %f<2>; .reg .f64 %fd<1>;"
            "ld.param.u64 %rd0, [p]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x;"
            "mad.lo.u32 %r0, %r1, 40, %r0; cvt.u64.u32 %rd1, %r0;" +
                code + "ret;"),
        memory, {3}, {40}, 0, p);
    EXPECT_EQ(download<decltype(start)>(memory, p, 1)[0], expected) << code;
  };
  const u32 sum = 119 * 120 / 2;
  check("atom.global.add.u32 %r2, [%rd0], %r0;", u32{5}, u32{5 + sum});
  check("red.relaxed.gpu.global.add.u64 [%rd0], %rd1;", u64{1} << 40, (u64{1} << 40) + sum);
  check("atom.max.s32 %r2, [%rd0], %r0;", int32_t{-7}, int32_t{119});
  check("red.global.min.u32 [%rd0], %r0;", u32{50}, u32{0});
  check("red.global.or.b32 [%rd0], %r0;", u32{0}, u32{127});
  check("red.global.inc.u32 [%rd0], 6;", u32{0}, u32{120 % 7});
  check("cvt.rn.f32.u32 %f0, %r0; red.global.add.f32 [%rd0], %f0;", 0.5f,
        0.5f + static_cast<float>(sum));
  // Subnormal f32 are zero of their sign, before and after.
  check("mov.f32 %f0, 0f00000000; red.global.add.f32 [%rd0], %f0;", u32{3}, u32{0});
  check("mov.f32 %f0, 0f80000003; atom.add.f32 %f1, [%rd0], %f0;", u32{0x80000003}, u32{1} << 31);
  check(
      ".reg .pred %p; setp.eq.u32 %p, %r0, 0; mov.f32 %f0, 0f80800000;"
      "@%p red.global.add.f32 [%rd0], %f0;",
      u32{0x00800001}, u32{0});
  check("mov.f64 %fd0, 0d0000000000000001; red.global.add.f64 [%rd0], %fd0;", u64{3}, u64{123});
  check("red.global.add.noftz.f16 [%rd0], 0x3C00;", uint16_t{0}, uint16_t{0x5780});  // 120
  check("red.global.add.noftz.bf16x2 [%rd0], 0x3F800000;", u32{0}, u32{0x42F00000});
  // The one who finds 0 leaves its number behind.
  check("add.u32 %r2, %r0, 1; atom.global.cas.b32 %r3, [%rd0], 0, %r2;", u32{0}, u32{1});
  check("atom.global.exch.b32 %r3, [%rd0], %r0;", u32{3}, u32{119});
}

TEST(Program, PartsOfRegisters) {
  expect_each<u64, u64>(
      "mov.b64 {%h0, %h1, %h2, %h3}, %a; mov.b64 %d, {%h3, %h2, %h1, %h0};",
      [](u64 a) { return a << 48 | (a & 0xffff0000) << 16 | (a >> 16 & 0xffff0000) | a >> 48; });
  expect_each<u32, u32>("{ .reg .b16 %h0; mov.b32 {_, %h0}, %a; mov.b32 %d, {%h0, %h0}; }",
                        [](u32 a) { return a >> 16 | (a & 0xffff0000); });
}

TEST(Program, SeveralLaunchesShareAModuleAndMemory) {
  const Module m = Module::parse(kernel("", R"(
    .reg .b32 %r<2>; ld.global.u32 %r0, [count]; add.u32 %r0, %r0, 1; st.global.u32 [count], %r0;
    ret;)",
                                        ".global .u32 count = 3;") +
                                 R"(
.entry read(.param .u64 out) { .reg .b64 %rd0; .reg .b32 %r0; ld.param.u64 %rd0, [out];
  ld.global.u32 %r0, [count]; st.global.u32 [%rd0], %r0; })");
  EXPECT_EQ(m.kernels(), (std::vector<std::string>{"k", "read"}));
  EXPECT_EQ(m.parameter_sizes("read"), std::vector<size_t>{8});
  Memory memory;
  for (int i = 0; i < 4; ++i) launch(m, "k", {}, memory);
  const u64 out = memory.allocate(4);
  Launch l;
  l.args = {&out};
  EXPECT_EQ(launch(m, "read", l, memory).instructions, 4u);
  EXPECT_EQ(download<u32>(memory, out, 1)[0], 7u);
}

}  // namespace
}  // namespace gradus::ptx::test
