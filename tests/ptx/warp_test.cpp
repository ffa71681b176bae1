// Lanes of a warp: shuffles, votes, and paths that part and meet.
#include "tests/ptx/support.h"

namespace gradus::ptx::test {
namespace {

using u32 = uint32_t;

// Runs `code` in a block of whole warps; thread i finds i in %r0, its lane in %r1 and values[i]
// in %r2, and leaves its result in %r3.
std::vector<u32> in_warps(const std::string& code, const std::vector<u32>& values) {
  Memory memory;
  const uint64_t in = upload(memory, values), out = memory.allocate(values.size() * 4);
  run_kernel(kernel(".param .u64 in, .param .u64 out",
                    ".reg .pred %p, %q; .reg .b64 %rd<4>; .reg .b32 %r<16>;\n"
                    "mov.u32 %r0, %tid.x; mov.u32 %r1, %laneid; ld.param.u64 %rd0, [in];\n"
                    "mad.wide.u32 %rd1, %r0, 4, %rd0; ld.global.u32 %r2, [%rd1];\n" +
                        code +
                        "\nld.param.u64 %rd0, [out]; mad.wide.u32 %rd1, %r0, 4, %rd0;\n"
                        "st.global.u32 [%rd1], %r3; ret;"),
             memory, {1}, {static_cast<u32>(values.size())}, 0, in, out);
  return download<u32>(memory, out, values.size());
}

template <class F>
void expect_warps(const std::string& code, F f) {
  const auto values = samples<u32>(96, 3);
  const auto results = in_warps(code, values);
  for (u32 i = 0; i < values.size(); ++i)
    EXPECT_EQ(results[i], f(i % 32, values.data() + i / 32 * 32)) << code << " in thread " << i;
}

TEST(Warp, Shuffles) {
  expect_warps("shfl.sync.idx.b32 %r3, %r2, 5, 31, -1;", [](u32, const u32* v) { return v[5]; });
  expect_warps("sub.u32 %r4, 31, %r1; shfl.sync.idx.b32 %r3, %r2, %r4, 31, -1;",
               [](u32 i, const u32* v) { return v[31 - i]; });
  expect_warps("shfl.sync.bfly.b32 %r3, %r2, 9, 31, -1;",
               [](u32 i, const u32* v) { return v[i ^ 9]; });
  // Past the end a lane gets its own value, and the predicate is false.
  expect_warps("shfl.sync.down.b32 %r3|%p, %r2, 7, 31, -1; @!%p mov.u32 %r3, 77;",
               [](u32 i, const u32* v) { return i + 7 < 32 ? v[i + 7] : 77; });
  expect_warps(
      "shfl.sync.up.b32 %r3|%p, %r2, 3, 0, -1; selp.u32 %r4, 1, 0, %p;"
      "add.u32 %r3, %r3, %r4;",
      [](u32 i, const u32* v) { return i >= 3 ? v[i - 3] + 1 : v[i]; });
  // Segments of eight lanes: c = (31 - 7) << 8 | 7.
  expect_warps("shfl.sync.down.b32 %r3, %r2, 3, 6175, -1;",
               [](u32 i, const u32* v) { return i % 8 + 3 < 8 ? v[i + 3] : v[i]; });
  expect_warps("shfl.sync.idx.b32 %r3, %r2, 2, 6175, -1;",
               [](u32 i, const u32* v) { return v[i / 8 * 8 + 2]; });
}

TEST(Warp, ShufflesOfTwoHalves) {
  // Each half with a mask of its own, in one instruction and in two.
  expect_warps(
      "setp.lt.u32 %p, %r1, 16; selp.b32 %r4, 65535, -65536, %p;"
      "shfl.sync.bfly.b32 %r3, %r2, 1, 31, %r4;",
      [](u32 i, const u32* v) { return v[i ^ 1]; });
  expect_warps(
      "setp.lt.u32 %p, %r1, 16; @%p bra $low;"
      "shfl.sync.bfly.b32 %r3, %r2, 2, 31, -65536; bra $end;"
      "$low: shfl.sync.bfly.b32 %r3, %r2, 1, 31, 65535; $end:",
      [](u32 i, const u32* v) { return i < 16 ? v[i ^ 1] : v[i ^ 2]; });
}

TEST(Warp, Votes) {
  const auto odd = [](const u32* v) {
    u32 m = 0;
    for (u32 i = 0; i < 32; ++i) m |= (v[i] & 1) << i;
    return m;
  };
  const std::string p = "and.b32 %r4, %r2, 1; setp.eq.u32 %p, %r4, 1;";
  expect_warps(p + "vote.sync.ballot.b32 %r3, %p, -1;", [=](u32, const u32* v) { return odd(v); });
  expect_warps(p + "vote.sync.ballot.b32 %r3, !%p, -1;",
               [=](u32, const u32* v) { return ~odd(v); });
  expect_warps(p + "vote.sync.any.pred %q, %p, -1; selp.u32 %r3, 1, 0, %q;",
               [=](u32, const u32* v) { return u32{odd(v) != 0}; });
  expect_warps("setp.lt.u32 %p, %r1, 32; vote.sync.all.pred %q, %p, -1; selp.u32 %r3, 1, 0, %q;",
               [](u32, const u32*) { return 1u; });
  expect_warps(p + "vote.sync.uni.pred %q, %p, -1; selp.u32 %r3, 1, 0, %q;",
               [=](u32, const u32* v) { return u32{odd(v) == 0 || odd(v) == ~0u}; });
}

TEST(Warp, MatchesAndReductions) {
  expect_warps("and.b32 %r4, %r2, 3; match.any.sync.b32 %r3, %r4, -1;", [](u32 i, const u32* v) {
    u32 m = 0;
    for (u32 k = 0; k < 32; ++k) m |= static_cast<u32>((v[k] & 3) == (v[i] & 3)) << k;
    return m;
  });
  expect_warps("match.all.sync.b32 %r3|%p, %r2, -1; @%p mov.u32 %r3, 5;",
               [](u32, const u32*) { return 0u; });
  expect_warps("redux.sync.add.s32 %r3, %r2, -1;", [](u32, const u32* v) {
    u32 s = 0;
    for (u32 k = 0; k < 32; ++k) s += v[k];
    return s;
  });
  expect_warps("redux.sync.min.s32 %r3, %r2, -1;", [](u32, const u32* v) {
    int32_t s = INT32_MAX;
    for (u32 k = 0; k < 32; ++k) s = std::min(s, static_cast<int32_t>(v[k]));
    return static_cast<u32>(s);
  });
  expect_warps("redux.sync.max.u32 %r3, %r2, -1;",
               [](u32, const u32* v) { return *std::max_element(v, v + 32); });
  expect_warps("redux.sync.xor.b32 %r3, %r2, -1;", [](u32, const u32* v) {
    u32 s = 0;
    for (u32 k = 0; k < 32; ++k) s ^= v[k];
    return s;
  });
  expect_warps("elect.sync %r4|%p, -1; selp.u32 %r3, 1, 0, %p;",
               [](u32 i, const u32*) { return u32{i == 0}; });
}

TEST(Warp, PathsPartAndMeet) {
  // Nested conditions; behind them all lanes are together again, as activemask says.
  expect_warps(R"(
    mov.u32 %r3, 0; and.b32 %r4, %r1, 1; setp.eq.u32 %p, %r4, 0; @%p bra $even;
    and.b32 %r4, %r1, 2; setp.eq.u32 %p, %r4, 0; @%p bra $one;
    add.u32 %r3, %r3, 30; bra $join;
$one: add.u32 %r3, %r3, 10; bra $join;
$even: add.u32 %r3, %r3, 2;
$join: activemask.b32 %r5; setp.ne.u32 %p, %r5, -1; @%p mov.u32 %r3, 999;)",
               [](u32 i, const u32*) { return i % 2 == 0   ? 2u
                                              : i % 4 == 1 ? 10u
                                                           : 30u; });
}

TEST(Warp, LoopsOfDifferentLengths) {
  expect_warps(R"(
    mov.u32 %r3, 0; mov.u32 %r4, 0;
$loop: setp.gt.u32 %p, %r4, %r1; @%p bra $out;
    add.u32 %r3, %r3, %r4; add.u32 %r4, %r4, 1; bra $loop;
$out: shfl.sync.idx.b32 %r5, %r3, 31, 31, -1; add.u32 %r3, %r3, %r5;)",
               [](u32 i, const u32*) { return i * (i + 1) / 2 + 31 * 32 / 2; });
  // A break out of two loops.
  expect_warps(R"(
    mov.u32 %r3, 0; mov.u32 %r4, 0;
$outer: mov.u32 %r5, 0;
$inner: add.u32 %r3, %r3, 1; setp.ge.u32 %p, %r3, %r1; @%p bra $out;
    add.u32 %r5, %r5, 1; setp.lt.u32 %p, %r5, 3; @%p bra $inner;
    add.u32 %r4, %r4, 1; setp.lt.u32 %p, %r4, 4; @%p bra $outer;
$out: bar.warp.sync -1;)",
               [](u32 i, const u32*) { return std::clamp(i, 1u, 12u); });
}

TEST(Warp, LanesWaitForOthers) {
  // Lanes come to one shuffle in two groups.
  expect_warps(R"(
    setp.lt.u32 %p, %r1, 9; @%p bra $meet; add.u32 %r2, %r2, 100;
$meet: shfl.sync.bfly.b32 %r3, %r2, 31, 31, -1;)",
               [](u32 i, const u32* v) {
                 const u32 from = i ^ 31;
                 return v[from] + (from < 9 ? 0 : 100);
               });
}

TEST(Warp, LanesMayExitOnTheirOwn) {
  Memory memory;
  const uint64_t p = memory.allocate(128);
  memory.fill(p, std::byte{0}, 128);
  run_kernel(kernel(".param .u64 p",
                    ".reg .pred %p; .reg .b64 %rd<2>; .reg .b32 %r<4>;\n"
                    "mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p]; mad.wide.u32 %rd1, %r0, 4, %rd0;"
                    "setp.lt.u32 %p, %r0, 20; @!%p exit; activemask.b32 %r1;"
                    "st.global.u32 [%rd1], %r1; ret;"),
             memory, {1}, {32}, 0, p);
  const auto r = download<u32>(memory, p, 32);
  for (u32 i = 0; i < 32; ++i) EXPECT_EQ(r[i], i < 20 ? (1u << 20) - 1 : 0u);
}

TEST(Warp, BlockBarriersThatReduce) {
  const auto code = [](const std::string& red) {
    return "setp.gt.u32 %p, %r0, 40; " + red + "; selp.u32 %r4, 1, 0, %q;";
  };
  const std::vector<u32> values(96, 0);
  const auto all_are = [&](const std::string& c, u32 expected) {
    for (u32 r : in_warps(c, values)) EXPECT_EQ(r, expected) << c;
  };
  all_are("setp.gt.u32 %p, %r0, 40; bar.red.popc.u32 %r3, 0, %p;", 55);
  all_are("setp.gt.u32 %p, %r0, 40; barrier.cta.red.popc.u32 %r3, 1, 96, !%p;", 41);
  all_are(code("bar.red.or.pred %q, 0, %p") + "mov.u32 %r3, %r4;", 1);
  all_are(code("bar.red.and.pred %q, 0, %p") + "mov.u32 %r3, %r4;", 0);
}

TEST(Warp, SharedMemoryGoesAroundTheBlock) {
  Memory memory;
  const uint64_t p = memory.allocate(4 * 256);
  // Each thread takes over the value of its mirror image; static and dynamic memory.
  run_kernel(kernel(".param .u64 p",
                    ".reg .b64 %rd<2>; .reg .b32 %r<8>;\n"
                    ".shared .align 4 .b8 own[512];"
                    "mov.u32 %r0, %tid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, own;"
                    "mad.lo.u32 %r3, %r0, 4, %r2; mul.lo.u32 %r4, %r0, %r0;"
                    "st.shared.u32 [%r3], %r4; mov.u32 %r2, dynamic; mad.lo.u32 %r3, %r0, 4, %r2;"
                    "st.shared.u32 [%r3+4], %r0; bar.sync 0;"
                    "not.b32 %r5, %r0; add.u32 %r5, %r5, %r1; mov.u32 %r2, own;"
                    "mad.lo.u32 %r3, %r5, 4, %r2; ld.shared.u32 %r6, [%r3];"
                    "mov.u32 %r2, dynamic; mad.lo.u32 %r3, %r5, 4, %r2;"
                    "ld.shared.u32 %r7, [%r3+4]; mad.lo.u32 %r6, %r7, 65536, %r6;"
                    "ld.param.u64 %rd0, [p]; mad.wide.u32 %rd1, %r0, 4, %rd0;"
                    "st.global.u32 [%rd1], %r6; ret;",
                    ".extern .shared .align 16 .b8 dynamic[];"),
             memory, {1}, {128}, 4 + 4 * 128, p);
  const auto r = download<u32>(memory, p, 128);
  for (u32 i = 0; i < 128; ++i) EXPECT_EQ(r[i], (127 - i) * (127 - i) + (127 - i) * 65536);
}

}  // namespace
}  // namespace gradus::ptx::test
