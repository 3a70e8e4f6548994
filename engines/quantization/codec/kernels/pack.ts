// Packing: writes the levels of a super-block of 256 columns, one byte each in column order, and the bytes of its scales
// in the format of GGUF files. The reverse of takeApart() in engines/wasm/kernels/k-quants/file.ts.
import { IQ4_XS, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K } from "../../../wasm/kernels/types";

/** Packs the levels of a super-block, one byte each and not negative, into the super-block in the file format at `block`. */
// @ts-expect-error: decorator
@inline
export function packLevels(type: i32, levels: usize, block: usize): void {
  if (type == Q6_K) {
    packSixBits(levels, block);
  } else if (type == Q2_K) {
    packTwoBits(levels, block + 16);
  } else if (type == Q3_K) {
    packTopBits(levels, 2, block);
    packTwoBits(levels, block + 32);
  } else if (type == IQ4_XS) {
    for (let i: usize = 0; i < 8; i++) packPair(levels + (i << 5), levels + (i << 5) + 16, block + 8 + (i << 4));
  } else {
    if (type == Q5_K) packTopBits(levels, 4, block + 16);
    const out = block + (type == Q5_K ? 48 : 16);
    for (let i: usize = 0; i < 4; i++) {
      packPair(levels + (i << 6), levels + (i << 6) + 32, out + (i << 5));
      packPair(levels + (i << 6) + 16, levels + (i << 6) + 48, out + (i << 5) + 16);
    }
  }
}

/** Packs 16 levels into low nibbles and 16 others into high nibbles. */
// @ts-expect-error: decorator
@inline
export function packPair(low: usize, high: usize, out: usize): void {
  v128.store(out, nibbles(v128.load(low), v128.load(high)));
}

// @ts-expect-error: decorator
@inline
export function nibbles(low: v128, high: v128): v128 {
  return v128.or(v128.and(low, i8x16.splat(15)), i8x16.shl(high, 4));
}

/** Packs bit `bit` of each level: bit b of the 32 bytes at `out` belongs to block b of 32 columns. */
function packTopBits(levels: usize, bit: i32, out: usize): void {
  for (let half: usize = 0; half < 32; half += 16) {
    let bits = i32x4.splat(0);
    for (let part = 0; part < 8; part++) {
      const one = v128.and(i8x16.shr_u(v128.load(levels + (part << 5) + half), bit), i8x16.splat(1));
      bits = v128.or(bits, i8x16.shl(one, part));
    }
    v128.store(out + half, bits);
  }
}

/** Packs the lower two bits of each level. 32 bytes hold 128 columns, the lowest bits first. */
function packTwoBits(levels: usize, out: usize): void {
  const bits = i8x16.splat(3);
  for (let i: usize = 0; i < 4; i++) {
    const from = levels + (i >> 1 << 7) + ((i & 1) << 4);
    const low = v128.or(v128.and(v128.load(from), bits), i8x16.shl(v128.and(v128.load(from, 32), bits), 2));
    const high = v128.or(i8x16.shl(v128.and(v128.load(from, 64), bits), 4), i8x16.shl(v128.load(from, 96), 6));
    v128.store(out + (i << 4), v128.or(low, high));
  }
}

/** Packs levels of Q6_K: 128 columns have 64 bytes with the lower four bits and 32 bytes with the upper two bits. */
function packSixBits(levels: usize, block: usize): void {
  for (let i: usize = 0; i < 4; i++) {
    const from = levels + (i >> 1 << 7) + ((i & 1) << 4);
    const low = block + (i >> 1 << 6) + ((i & 1) << 4);
    const a = v128.load(from), b = v128.load(from, 32), c = v128.load(from, 64), d = v128.load(from, 96);
    v128.store(low, nibbles(a, c));
    v128.store(low, nibbles(b, d), 32);
    const upper = v128.or(
      v128.or(i8x16.shr_u(a, 4), i8x16.shl(i8x16.shr_u(b, 4), 2)),
      v128.or(i8x16.shl(i8x16.shr_u(c, 4), 4), i8x16.shl(i8x16.shr_u(d, 4), 6)),
    );
    v128.store(block + 128 + (i << 4), upper);
  }
}

/** Packs eight scales and eight mins of 6 bits into 12 bytes. The numbers of the last four blocks are split into two parts. */
export function packScalesAndMins(scales: usize, mins: usize, out: usize): void {
  for (let b: usize = 0; b < 4; b++) {
    const scale = load<u8>(scales + b), least = load<u8>(mins + b);
    const later = load<u8>(scales + b + 4), laterLeast = load<u8>(mins + b + 4);
    store<u8>(out + b, scale | (later >> 4 << 6));
    store<u8>(out + b + 4, least | (laterLeast >> 4 << 6));
    store<u8>(out + b + 8, (later & 15) | (laterLeast << 4));
  }
}

/** Packs 16 scales of -32..31: 8 bytes with the lower four bits, 4 bytes with the upper two bits. */
export function packScalesQ3(scales: usize, out: usize): void {
  for (let b: usize = 0; b < 8; b++) {
    store<u8>(out + b, (biased(scales + b) & 15) | (biased(scales + b + 8) << 4));
  }
  for (let b: usize = 0; b < 4; b++) {
    const low = (biased(scales + b) >> 4) | (biased(scales + b + 4) >> 4 << 2);
    const high = (biased(scales + b + 8) >> 4 << 4) | (biased(scales + b + 12) >> 4 << 6);
    store<u8>(out + b + 8, low | high);
  }
}

/** Packs 8 scales of -32..31: 2 bytes with the upper two bits, 4 bytes with the lower four bits. */
export function packScalesIq4(scales: usize, out: usize): void {
  let upper: u32 = 0;
  for (let b: usize = 0; b < 8; b++) upper |= <u32>(biased(scales + b) >> 4) << <u32>(b << 1);
  store<u16>(out, <u16>upper);
  for (let b: usize = 0; b < 4; b++) {
    store<u8>(out + b + 2, (biased(scales + (b << 1)) & 15) | (biased(scales + (b << 1) + 1) << 4));
  }
}

// @ts-expect-error: decorator
@inline
function biased(at: usize): u8 {
  return <u8>(load<i8>(at) + 32);
}
