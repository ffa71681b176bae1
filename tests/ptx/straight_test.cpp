#include <gtest/gtest.h>

#include "tests/ptx/launch.h"

namespace gradus::ptx {
namespace {

TEST(Straight, DoublesEachElement) {
  const Module m = Module::parse(R"(
.version 8.8
.target sm_90
.address_size 64
.visible .entry twice(.param .u64 p, .param .u32 n)
{
  .reg .pred %p<2>; .reg .b32 %r<5>; .reg .b64 %rd<4>; .reg .f32 %f<3>;
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.s32 %r4, %r2, %r3, %r4;
  setp.ge.s32 %p1, %r4, %r1;
  @%p1 bra $end;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.s32 %rd3, %r4, 4;
  add.s64 %rd2, %rd2, %rd3;
  ld.global.f32 %f1, [%rd2];
  add.f32 %f2, %f1, %f1;
  st.global.f32 [%rd2], %f2;
$end:
  ret;
}
)");
  Memory memory;
  const uint32_t n = 100;
  const uint64_t p = memory.allocate(n * 4);
  std::vector<float> x(n);
  for (uint32_t i = 0; i < n; ++i) x[i] = static_cast<float>(i);
  memory.write(p, x.data(), n * 4);
  Launch l;
  l.grid.x = 4;
  l.block.x = 32;
  l.args = {&p, &n};
  launch(m, "twice", l, memory);
  memory.read(x.data(), p, n * 4);
  for (uint32_t i = 0; i < n; ++i) EXPECT_EQ(x[i], 2 * static_cast<float>(i));
}

}  // namespace
}  // namespace gradus::ptx
