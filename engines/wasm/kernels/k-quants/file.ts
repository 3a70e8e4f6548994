// Format of super-blocks of 256 columns in GGUF files. Unpacking a super-block writes one byte for each quant, in
// column order, and separately the bytes of the scales. Called by rows.ts for every weight that is loaded.
import { IQ4_XS, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K } from "../types";

/** Returns the size in bytes of a super-block in the file. */
// @ts-expect-error: decorator
@inline
export function fileSuperBytes(type: i32): i32 {
  if (type == Q2_K) return 84;
  if (type == Q3_K) return 110;
  if (type == Q4_K) return 144;
  if (type == Q5_K) return 176;
  return type == Q6_K ? 210 : 136;
}

/** Returns the offset of the super-scale, a float16. In types with mins, the super-scale of the mins follows. */
// @ts-expect-error: decorator
@inline
export function fileSuperScaleAt(type: i32): i32 {
  if (type == Q2_K) return 80;
  if (type == Q3_K) return 108;
  return type == Q6_K ? 208 : 0;
}

/**
 * Unpacks a super-block: writes 256 quants, and two bytes of scales for each block of 32 (IQ4_XS: one byte), as
 * layout.ts defines.
 */
export function takeApart(type: i32, block: usize, quants: usize, scales: usize): void {
  if (type == Q6_K) {
    takeQ6(block, quants);
    memory.copy(scales, block + 192, 16);
  } else if (type == Q2_K) {
    takeTwoBits(block + 16, 0, quants);
    memory.copy(scales, block, 16);
  } else if (type == Q3_K) {
    takeTwoBits(block + 32, block, quants);
    takeScalesQ3(block + 96, scales);
  } else if (type == IQ4_XS) {
    takeIq4(block + 8, quants);
    takeScalesIq4(block + 2, scales);
  } else {
    takeNibbles(block + (type == Q5_K ? 48 : 16), type == Q5_K ? block + 16 : 0, quants);
    takeScalesAndMinimums(block + 4, scales);
  }
}

// @ts-expect-error: decorator
@inline
function nibble(bytes: v128, high: bool): v128 {
  return high ? i8x16.shr_u(bytes, 4) : v128.and(bytes, i8x16.splat(15));
}

/**
 * Unpacks quants of 4 and 5 bits. 32 bytes hold 64 columns, the low nibbles first. Bit b of the 32 bytes at `fifth` is
 * the fifth bit in block b of 32 columns. If `fifth` is 0, there are no fifth bits.
 */
function takeNibbles(from: usize, fifth: usize, out: usize): void {
  for (let part = 0; part < 8; part++) {
    for (let half: usize = 0; half < 32; half += 16) {
      let quants = nibble(v128.load(from + <usize>(part >> 1 << 5) + half), (part & 1) != 0);
      if (fifth) {
        const bit = v128.and(i8x16.shr_u(v128.load(fifth + half), part), i8x16.splat(1));
        quants = v128.or(quants, i8x16.shl(bit, 4));
      }
      v128.store(out + (part << 5) + half, quants);
    }
  }
}

/** Unpacks quants of IQ4_XS. 16 bytes hold 32 columns, the low nibbles first. */
function takeIq4(from: usize, out: usize): void {
  for (let i = 0; i < 8; i++) {
    const bytes = v128.load(from + (i << 4));
    v128.store(out + (i << 5), nibble(bytes, false));
    v128.store(out + (i << 5), nibble(bytes, true), 16);
  }
}

/**
 * Unpacks quants of Q6_K. 128 columns have 64 bytes with the lower four bits (low nibbles first) and 32 bytes with the
 * upper two bits.
 */
function takeQ6(block: usize, out: usize): void {
  for (let part = 0; part < 8; part++) {
    const quarter = part & 3;
    const low = block + <usize>((part >> 2 << 6) + ((quarter & 1) << 5));
    const high = block + 128 + <usize>(part >> 2 << 5);
    for (let half: usize = 0; half < 32; half += 16) {
      const upper = v128.and(i8x16.shr_u(v128.load(high + half), quarter << 1), i8x16.splat(3));
      const quants = v128.or(nibble(v128.load(low + half), quarter > 1), i8x16.shl(upper, 4));
      v128.store(out + (part << 5) + half, quants);
    }
  }
}

/**
 * Unpacks quants of 2 and 3 bits. 32 bytes hold 128 columns, the lowest bits first. Bit b of the 32 bytes at `third` is
 * the third bit in block b of 32 columns. If `third` is 0, there are no third bits.
 */
function takeTwoBits(from: usize, third: usize, out: usize): void {
  for (let part = 0; part < 8; part++) {
    for (let half: usize = 0; half < 32; half += 16) {
      const bytes = v128.load(from + <usize>(part >> 2 << 5) + half);
      let quants = v128.and(i8x16.shr_u(bytes, (part & 3) << 1), i8x16.splat(3));
      if (third) {
        const bit = v128.and(i8x16.shr_u(v128.load(third + half), part), i8x16.splat(1));
        quants = v128.or(quants, i8x16.shl(bit, 2));
      }
      v128.store(out + (part << 5) + half, quants);
    }
  }
}

/**
 * Unpacks the scales of Q4_K and Q5_K. 12 bytes hold eight scales and eight mins of 6 bits. The scales and mins of the
 * last four blocks are split in two parts.
 */
function takeScalesAndMinimums(from: usize, out: usize): void {
  for (let b: usize = 0; b < 8; b++) {
    const low = load<u8>(from + (b & 3)), high = load<u8>(from + (b & 3) + 4), more = load<u8>(from + (b & 3) + 8);
    store<u8>(out + (b << 1), b < 4 ? low & 63 : (more & 15) | (low >> 6 << 4));
    store<u8>(out + (b << 1) + 1, b < 4 ? high & 63 : (more >> 4) | (high >> 6 << 4));
  }
}

/**
 * Unpacks the scales of Q3_K: 16 scales of 6 bits, each with 32 added. 8 bytes hold the lower four bits, 4 bytes the
 * upper two bits.
 */
function takeScalesQ3(from: usize, out: usize): void {
  for (let i: usize = 0; i < 16; i++) {
    const low = load<u8>(from + (i & 7)) >> (i < 8 ? 0 : 4) & 15;
    const high = load<u8>(from + 8 + (i & 3)) >> (<u8>(i >> 2) << 1) & 3;
    store<i8>(out + i, <i8>(low | (high << 4)) - 32);
  }
}

/**
 * Unpacks the scales of IQ4_XS: 8 scales of 6 bits, each with 32 added. 2 bytes hold the upper two bits, 4 bytes the
 * lower four bits.
 */
function takeScalesIq4(from: usize, out: usize): void {
  const upper = load<u16>(from);
  for (let b: usize = 0; b < 8; b++) {
    const low = load<u8>(from + 2 + (b >> 1)) >> (<u8>(b & 1) << 2) & 15;
    const high = <u8>(upper >> (<u16>b << 1) & 3);
    store<i8>(out + b, <i8>(low | (high << 4)) - 32);
  }
}
