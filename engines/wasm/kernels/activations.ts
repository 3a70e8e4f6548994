// Element-wise functions: activations, gated activations and the soft cap. Lengths need not be multiples of 4: each
// remaining float is computed as a whole vector, and one lane is stored.
import { multiplyAdd } from "./arithmetic";
import { exponential, hyperbolicTangent } from "./exponential";

// All activations are x * sigmoid(x * (linear + cubic * x^2)). For silu, linear is 1 and cubic is 0. For gelu, the
// result equals the tanh approximation x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))). The sigmoid form is more
// precise for x < 0, because 1 + tanh(...) subtracts almost equal numbers there. For quick gelu, linear is 1.702 and
// cubic is 0.
const GELU: i32 = 1;
const QUICK_GELU: i32 = 2;
const QUICK_GELU_LINEAR: f32 = 1.702;
const GELU_LINEAR: f32 = 1.5957691216057308;
const GELU_CUBIC: f32 = 0.07135481627246835;

/** Upper bound for x^2. Without it, x^2 could be infinite, and its product with silu's cubic factor 0 would be NaN. */
const MOST_SQUARE: f32 = 1e30;
/** Smallest argument of the sigmoid. For smaller arguments, the sigmoid is less than 7e-39 and counts as 0. */
const LEAST: f32 = -88;

export function activate(activation: i32, x: usize, out: usize, count: i32): void {
  const linear = linearOf(activation);
  const cubic = cubicOf(activation);
  const bytes = <usize>count << 2;
  const vectorBytes = bytes & ~15;
  for (let at: usize = 0; at < vectorBytes; at += 16) {
    v128.store(out + at, activated(v128.load(x + at), linear, cubic));
  }
  for (let at = vectorBytes; at < bytes; at += 4) {
    v128.store32_lane(out + at, activated(v128.load32_splat(x + at), linear, cubic), 0);
  }
}

export function gate(activation: i32, gate: usize, up: usize, out: usize, count: i32): void {
  const linear = linearOf(activation);
  const cubic = cubicOf(activation);
  const bytes = <usize>count << 2;
  const vectorBytes = bytes & ~15;
  for (let at: usize = 0; at < vectorBytes; at += 16) {
    v128.store(out + at, f32x4.mul(activated(v128.load(gate + at), linear, cubic), v128.load(up + at)));
  }
  for (let at = vectorBytes; at < bytes; at += 4) {
    const gated = f32x4.mul(activated(v128.load32_splat(gate + at), linear, cubic), v128.load32_splat(up + at));
    v128.store32_lane(out + at, gated, 0);
  }
}

// @ts-ignore: decorator
@inline
function linearOf(activation: i32): v128 {
  if (activation == QUICK_GELU) return f32x4.splat(QUICK_GELU_LINEAR);
  return f32x4.splat(activation == GELU ? GELU_LINEAR : 1);
}

// @ts-ignore: decorator
@inline
function cubicOf(activation: i32): v128 {
  return f32x4.splat(activation == GELU ? GELU_CUBIC : 0);
}

// @ts-ignore: decorator
@inline
function activated(x: v128, linear: v128, cubic: v128): v128 {
  const square = f32x4.pmin(f32x4.mul(x, x), f32x4.splat(MOST_SQUARE));
  const steep = f32x4.mul(x, multiplyAdd(cubic, square, linear));
  const value = f32x4.div(x, f32x4.add(exponential(f32x4.neg(steep)), f32x4.splat(1)));
  // For very negative arguments the quotient is wrong, because exponential() returns normal floats only. The result is
  // set to 0 there.
  return v128.andnot(value, f32x4.lt(steep, f32x4.splat(LEAST)));
}

export function softcap(x: usize, count: i32, cap: f32): void {
  const end = x + (<usize>count << 2);
  const caps = f32x4.splat(cap);
  for (const vectorsEnd = x + (<usize>(count & ~3) << 2); x < vectorsEnd; x += 16) {
    v128.store(x, f32x4.mul(hyperbolicTangent(f32x4.div(v128.load(x), caps)), caps));
  }
  for (; x < end; x += 4) {
    v128.store32_lane(x, f32x4.mul(hyperbolicTangent(f32x4.div(v128.load32_splat(x), caps)), caps), 0);
  }
}
