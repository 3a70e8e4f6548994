// Decoders: convert blocks of a GGUF file to floats, with exactly the values that llama.cpp gives them.
import { fp4Levels, iq4Levels, lookUp } from "../../../wasm/kernels/block-quants/codebook";
import { fileSuperBytes, fileSuperScaleAt, takeApart } from "../../../wasm/kernels/k-quants/file";
import { IQ4_NL, IQ4_XS, MXFP4, Q2_K, Q8_0 } from "../../../wasm/kernels/types";
import { BLOCK, biasOf, blockBytes, hasFifthBits, hasMins } from "./blocks/format";
import { float } from "./floats";
import { addToFloats, storeFloats } from "./levels";
import { biasOf as superBiasOf, hasMins as hasSuperMins, lengthOf, SUPER } from "./super-blocks";

/** An unpacked super-block: its levels, and the bytes of its scales. */
const LEVELS: usize = memory.data(256, 16);
const SCALES: usize = memory.data(16, 16);

/** Decodes `count` values of a type with blocks of 32. */
// @ts-expect-error: decorator
@inline
export function decodeBlocks(type: i32, from: usize, count: i32, out: usize): void {
  for (const end = out + (<usize>count << 2); out < end; out += <usize>BLOCK << 2) {
    const scale = type == MXFP4 ? halfPower(load<u8>(from)) : float(load<u16>(from));
    if (type == Q8_0) {
      storeFloats(v128.load(from, 2), scale, out);
      storeFloats(v128.load(from, 18), scale, out + 64);
    } else {
      const bytes = v128.load(from + blockBytes(type) - 16);
      let low = v128.and(bytes, i8x16.splat(15)), high = i8x16.shr_u(bytes, 4);
      if (hasFifthBits(type)) {
        const bits = from + (hasMins(type) ? 4 : 2);
        low = v128.or(low, fifthBits(load<u16>(bits)));
        high = v128.or(high, fifthBits(load<u16>(bits, 2)));
      }
      storeFloats(levels(type, low), scale, out);
      storeFloats(levels(type, high), scale, out + 64);
      if (hasMins(type)) {
        addToFloats(float(load<u16>(from, 2)), out);
        addToFloats(float(load<u16>(from, 2)), out + 64);
      }
    }
    from += blockBytes(type);
  }
}

// @ts-expect-error: decorator
@inline
function levels(type: i32, codes: v128): v128 {
  if (type == IQ4_NL) return lookUp(iq4Levels(), codes);
  if (type == MXFP4) return lookUp(fp4Levels(), codes);
  return i8x16.sub(codes, i8x16.splat(<i8>biasOf(type)));
}

/** Expands 16 bits, the lowest first, to 16 bytes with the value 16 (the fifth bit of a level) or 0. */
// @ts-expect-error: decorator
@inline
function fifthBits(bits: u16): v128 {
  const bytes = lookUp(i16x8.splat(<i16>bits), i8x16(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1));
  const own = i8x16(1, 2, 4, 8, 16, 32, 64, -128, 1, 2, 4, 8, 16, 32, 64, -128);
  return v128.and(i8x16.eq(v128.and(bytes, own), own), i8x16.splat(16));
}

/** Returns 2^(exponent - 128). For exponents 0 and 1, the result is subnormal. */
// @ts-expect-error: decorator
@inline
function halfPower(exponent: u32): f32 {
  return reinterpret<f32>(exponent < 2 ? 0x00200000 << exponent : exponent - 1 << 23);
}

/** Decodes `count` values of a type with super-blocks. */
// @ts-expect-error: decorator
@inline
export function decodeSupers(type: i32, from: usize, count: i32, out: usize): void {
  for (const end = out + (<usize>count << 2); out < end; from += fileSuperBytes(type)) {
    takeApart(type, from, LEVELS, SCALES);
    const scale = float(load<u16>(from + fileSuperScaleAt(type)));
    const least = hasSuperMins(type) ? float(load<u16>(from + fileSuperScaleAt(type), 2)) : 0;
    for (let i: usize = 0; i < 16; i++) {
      const codes = v128.load(LEVELS + (i << 4));
      const levels = type == IQ4_XS ? lookUp(iq4Levels(), codes) : i8x16.sub(codes, i8x16.splat(<i8>superBiasOf(type)));
      storeFloats(levels, scale * scaleOf(type, i), out);
      if (hasSuperMins(type)) addToFloats(-(least * minOf(type, i)), out);
      out += 64;
    }
  }
}

/** Returns the scale of the 16 columns from 16 * i on, as an integer that is multiplied by the super-scale. */
// @ts-expect-error: decorator
@inline
function scaleOf(type: i32, i: usize): f32 {
  if (type == Q2_K) return <f32>(load<u8>(SCALES + i) & 15);
  if (type == IQ4_XS) return <f32>load<i8>(SCALES + (i >> 1));
  return <f32>load<i8>(SCALES + (lengthOf(type) == 16 ? i : i & ~1));
}

// @ts-expect-error: decorator
@inline
function minOf(type: i32, i: usize): f32 {
  return <f32>(type == Q2_K ? load<u8>(SCALES + i) >> 4 : load<u8>(SCALES + (i | 1)));
}
