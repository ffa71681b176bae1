// A kernel of the loop nest
//
//   nest 1 {
//     %v0 = load f64 [contiguous]
//     %v1 = sin(%v0) : f64 in f64
//     store %v1
//   }

typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

template <class T, int n>
struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) Pack {
  T at[n];
};

// In 16 bytes at a time where all are there and aligned; what is not there is 0.
template <class T, int n>
__device__ __forceinline__ Pack<T, n> load_pack(const T* from, u32 left, bool aligned) {
  if (aligned && left >= n) return *reinterpret_cast<const Pack<T, n>*>(from);
  Pack<T, n> pack;
#pragma unroll
  for (u32 e = 0; e < n; ++e) pack.at[e] = e < left ? from[e] : T(0);
  return pack;
}

template <class T, int n>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, n>& pack, u32 left, bool aligned) {
  if (aligned && left >= n) {
    *reinterpret_cast<Pack<T, n>*>(to) = pack;
    return;
  }
#pragma unroll
  for (u32 e = 0; e < n; ++e)
    if (e < left) to[e] = pack.at[e];
}

// sin: y = sin(x)
__device__ __forceinline__ double sin_f64(double x) {
  const double t0 = fma(x, 0x1.45f306dc9c883p-1, 0x1.8p+52);
  const double t1 = t0 - 0x1.8p+52;
  const double t2 = fma(t1, -0x1.921fb54442d18p+0, x);
  const double t3 = t1 * 0x1.1a62633145c07p-54;
  const double t4 = fma(t1, 0x1.1a62633145c07p-54, -t3);
  const double t5 = -t3;
  const double t6 = t2 + t5;
  const double t7 = fma(t1, 0x1.f1976b7ed8fbcp-110, (t5 - (t6 - t2)) - t4);
  const double t8 = t6 + t7;
  const bool t9 = !(!(fabs(x) >= 0x1p+30));
  double t10 = t8;
  double t11 = t7 - (t8 - t6);
  i64 t12 = __double_as_longlong(t0);
  if (t9) {  // rarely
    const double t13 = fabs(x);
    const bool t14 = t13 >= 0x1p+902;
    const double t15 = t14 ? (t13 * 0x1p-848) : t13;
    const double t16 = t14 ? 0x1.fb3c9f2c26dd2p-2 : 0x1.45f306dc9c882p-1;
    const double t17 = t14 ? 0x1.d18fd9a797fa8p-1 : 0x1.4a7f09d5f47d4p-1;
    const double t18 = t14 ? 0x1.6ba93dd63f5f2p-1 : 0x1.a6ee06db14accp-1;
    const double t19 = t14 ? 0x1.f17b3d0739f78p-1 : 0x1.3c439041fe516p-1;
    const double t20 = t14 ? 0x1.4a525d4d7f6bfp-1 : 0x1.d5ef5de2b0db8p-3;
    const double t21 = t14 ? 0x1.88fc6ae842bp-2 : 0x1.2371d2126e97p-2;
    const double t22 = t14 ? 0x1.98237e3db5d5fp-1 : 0x1.924bba82746p-8;
    const bool t23 = t15 >= 0x1p+478;
    const double t24 = t23 ? (t15 * 0x1p-424) : t15;
    const double t25 = t23 ? 0x1.272117e2ef7e4p-2 : t20;
    const double t26 = t23 ? 0x1.41d8ffc4bffeep-2 : t21;
    const double t27 = t23 ? 0x1.02cc07f79788cp-1 : t22;
    const double t28 = t23 ? 0x1.6b414da3eda6cp-2 : 0x1.21cfe1deb1cb1p-1;
    const double t29 = t23 ? 0x1.fb3c9f2c26dd2p-2 : 0x1.4d39f74411af8p-3;
    const double t30 = t23 ? 0x1.d18fd9a797fa8p-1 : 0x1.4baed1213a671p-1;
    const double t31 = t23 ? 0x1.6ba93dd63f5f2p-1 : 0x1.8135a2fbf209cp-1;
    const double t32 = t23 ? 0x1.f17b3d0739f78p-1 : 0x1.91d639835339fp-1;
    const bool t33 = t24 >= 0x1p+266;
    const double t34 = t33 ? (t24 * 0x1p-212) : t24;
    const double t35 = t33 ? t25 : (t23 ? 0x1.4d39f74411af8p-3 : t16);
    const double t36 = t33 ? t26 : (t23 ? 0x1.4baed1213a671p-1 : t17);
    const double t37 = t33 ? t27 : (t23 ? 0x1.8135a2fbf209cp-1 : t18);
    const double t38 = t33 ? t28 : (t23 ? 0x1.91d639835339fp-1 : t19);
    const double t39 = t33 ? t29 : t25;
    const double t40 = t33 ? t30 : t26;
    const bool t41 = t34 >= 0x1p+160;
    const double t42 = t41 ? (t34 * 0x1p-106) : t34;
    const double t43 = t41 ? t38 : t36;
    const double t44 = t41 ? t39 : t37;
    const double t45 = t41 ? t40 : t38;
    const double t46 = t41 ? (t33 ? t31 : t27) : t39;
    const bool t47 = t42 >= 0x1p+107;
    const double t48 = t47 ? (t42 * 0x1p-53) : t42;
    const double t49 = t47 ? (t41 ? (t33 ? t32 : t28) : t40) : t46;
    const double t50 = (t47 ? t43 : (t41 ? t37 : t35)) * 1.0;
    const double t51 = t48 * t50;
    const double t52 = fma(t48, t50, -t51);
    const double t53 = (t47 ? t44 : t43) * 0x1p-53;
    const double t54 = t48 * t53;
    const double t55 = fma(t48, t53, -t54);
    const double t56 = (t47 ? t45 : t44) * 0x1p-106;
    const double t57 = t48 * t56;
    const double t58 = fma(t48, t56, -t57);
    const double t59 = (t47 ? t46 : t45) * 0x1p-159;
    const double t60 = t48 * t59;
    const double t61 = fma(trunc(t52 * 0.25), -4.0, t52);
    const double t62 = fma(trunc(t51 * 0.25), -4.0, t51);
    const double t63 = t62 + t61;
    const double t64 = t63 - t62;
    const double t65 = (t62 - (t63 - t64)) + (t61 - t64);
    const double t66 = fma(trunc(t54 * 0.25), -4.0, t54);
    const double t67 = t63 + t66;
    const double t68 = t67 - t63;
    const double t69 = (t63 - (t67 - t68)) + (t66 - t68);
    const double t70 = t67 + t55;
    const double t71 = t70 - t67;
    const double t72 = (t67 - (t70 - t71)) + (t55 - t71);
    const double t73 = t70 + t57;
    const double t74 = t73 - t70;
    const double t75 = (t70 - (t73 - t74)) + (t57 - t74);
    const double t76 = t65 + t69;
    const double t77 = t76 - t65;
    const double t78 = (t65 - (t76 - t77)) + (t69 - t77);
    const double t79 = t76 + t72;
    const double t80 = t79 - t76;
    const double t81 = (t76 - (t79 - t80)) + (t72 - t80);
    const double t82 = t79 + t75;
    const double t83 = t82 - t79;
    const double t84 = (t79 - (t82 - t83)) + (t75 - t83);
    const double t85 = t82 + t58;
    const double t86 = t85 - t82;
    const double t87 = (t82 - (t85 - t86)) + (t58 - t86);
    const double t88 = t85 + t60;
    const double t89 = t88 - t85;
    const double t90 = (t85 - (t88 - t89)) + (t60 - t89);
    const double t91 = (((t78 + t81) + t84) + t87) + t90;
    const double t92 = (t91 + fma(t48, t59, -t60)) + (t48 * (t49 * 0x1p-212));
    const double t93 = t73 + 0x1.8p+52;
    const double t94 = t73 - (t93 - 0x1.8p+52);
    const double t95 = t94 + t88;
    const double t96 = t95 - t94;
    const double t97 = (t94 - (t95 - t96)) + (t88 - t96);
    const double t98 = t97 + t92;
    const double t99 = t95 + t98;
    const double t100 = t99 * 0x1.921fb54442d18p+0;
    const double t101 = fma(t99, 0x1.921fb54442d18p+0, -t100);
    const double t102 = (t98 - (t99 - t95)) * 0x1.921fb54442d18p+0;
    const double t103 = fma(t99, 0x1.1a62633145c07p-54, t102);
    const double t104 = t101 + t103;
    const double t105 = t100 + t104;
    const double t106 = t104 - (t105 - t100);
    const i64 t107 = __double_as_longlong(t93);
    const bool t108 = x < 0.0;
    const i64 t109 = t108 ? i64(0ull - u64(t107)) : t107;
    t10 = t108 ? (-t105) : t105;
    t11 = t108 ? (-t106) : t106;
    t12 = t109;
  }
  const double t110 = t10 * t10;
  const double t111 = t110 * t110;
  const double t112 = fma(t111, 0x1.612094bdc04b8p-33, 0x1.71de3a533e21p-19);
  const double t113 = fma(t111, t112, 0x1.111111111110bp-7);
  const double t114 = fma(t111, -0x1.aaa5f8a2ea901p-41, -0x1.ae64529cb7febp-26);
  const double t115 = fma(t111, t114, -0x1.a01a01a018b33p-13);
  const double t116 = fma(t110, fma(t110, t115, t113), -0x1.5555555555555p-3);
  const double t117 = fma(t110 * t10, t116, t11 * fma(t110, -0.5, 1.0));
  const double t118 = t10 * t10;
  const double t119 = t118 * t118;
  const double t120 = fma(t119, -0x1.939397358f985p-37, -0x1.27e4fb7659633p-22);
  const double t121 = fma(t119, t120, -0x1.6c16c16c16c13p-10);
  const double t122 = fma(t119, 0x1.aaeccd8c5d706p-45, 0x1.1eed8d002a2edp-29);
  const double t123 = fma(t119, t122, 0x1.a01a01a0193ffp-16);
  const double t124 = fma(t118, fma(t118, t123, t121), 0x1.5555555555555p-5);
  const double t125 = t118 * 0.5;
  const double t126 = 1.0 - t125;
  const double t127 = ((1.0 - t126) - t125) - fma(t10 * 0.5, t10, -t125);
  const double t128 = fma(t118 * t118, t124, -(t10 * t11));
  const double t129 = (i64(u64(t12) << 63) < 0) ? (t126 + (t127 + t128)) : (t10 + t117);
  const i64 t130 = __double_as_longlong(t129) ^ i64(u64(t12 & 2) << 62);
  return (x == 0.0) ? x : __longlong_as_double(t130);
}

// Sizes of the loops, and strides of what is read, in elements.
struct Shape {
  u32 n0;
  u32 groups;
  u32 items;
  u32 whole;
};

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(
    const double* x0,
    double* y0,
    const Shape shape) {
#pragma unroll 1
  for (u32 item = blockIdx.x * 256 + threadIdx.x; item < shape.items; item += gridDim.x * 256) {
    const u32 column = item * 2;
    const u32 left = shape.n0 - column;
    const Pack<double, 2> from0 = load_pack<double, 2>(x0 + column, left, shape.whole >> 0 & 1);
    Pack<double, 2> to0;
#pragma unroll
    for (u32 e = 0; e < 2; ++e) {
      const double v0 = from0.at[e];  // %v0 = load f64 [contiguous]
      const double v1 = sin_f64(v0);  // %v1 = sin(%v0) : f64 in f64
      to0.at[e] = v1;
    }
    store_pack(y0 + column, to0, left, shape.whole >> 1 & 1);
  }
}
