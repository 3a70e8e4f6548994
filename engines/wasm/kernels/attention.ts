// Owns attention over the pages of the KV cache, a KV head and a tile of tokens at a time. Many queries share a tile: then
// its keys and values become floats once for all of them; few multiply straight from the page. The softmax goes along from
// tile to tile, rescaling what it has whenever a larger score turns up. A query here is one head of one row.
import {
  headBytes, keyEightBytes, keysAt, keyScalesAt, largestLane, scaleStride, unpackKeys, unpackValues, valueEightBytes,
  valuesAt, valueScalesAt,
} from "./attention-pages";
import { multiplyFour, multiplyOne, multiplyThree, multiplyTwo } from "./attention-tiles";
import { exponential } from "./exponential";
import { BF16, F16, F32 } from "./types";

export { kvPageBytes, kvWrite } from "./attention-pages";

/** Most tokens of a tile, and most floats of its keys, or of its values: both stay in the first-level cache. */
const TILE_TOKENS: i32 = 32;
const TILE_FLOATS: i32 = 4096;
/** More queries than this are worth unpacking a tile for. */
const FEW_QUERIES: i32 = 8;
/** Bytes of a tile's scores of one query. */
const SCORES: usize = 128;
/** Floats behind a head's values in what attend() writes: the largest score, the sum of weights, padding. */
const TAIL: i32 = 4;
/** Less than every score. */
const NOTHING: f32 = -1e30;
/** A weight below e^this of the largest counts as 0: no sum would show it, and products with it are slow. */
const WEIGHTLESS: f32 = -60;

// Scratch of a call, in the first 64 KiB of the memory, which the host leaves to the kernels: a tile's keys and values,
// and four queries' scores, and these once more times a scale. Products of a tile cut short read behind it.
const KEYS: usize = (__heap_base + 15) & ~15;
const VALUES: usize = KEYS + TILE_FLOATS * 4 + SCORES;
const SCORES_0: usize = VALUES + TILE_FLOATS * 4;
const SCORES_1: usize = SCORES_0 + SCORES;
const SCORES_2: usize = SCORES_1 + SCORES;
const SCORES_3: usize = SCORES_2 + SCORES;
const SCALED: usize = 4 * SCORES;

// The call under way: set by attend(), meaningless between calls. Steps are in bytes.
let sharing: i32 = 0;
let headFloats: i32 = 0;
let scoreScale: f32 = 0;
let queryCount: i32 = 0;
let queries: usize = 0;
let queryRow: usize = 0;
let queryStep: usize = 0;
let records: usize = 0;
let recordRow: usize = 0;
let recordStep: usize = 0;
let scaleStep: usize = 0;

// The tile under way; row i sees its first seenByFirst + i tokens.
let keys: usize = 0;
let keyEight: usize = 0;
let keyScales: usize = 0;
let values: usize = 0;
let valueEight: usize = 0;
let valueScales: usize = 0;
let seenByFirst: i32 = 0;

export function attend(
  kvType: i32, pages: usize, pageCount: i32, blockTokens: i32, q: usize, qStride: i32, n: i32, firstPosition: i32,
  heads: i32, kvHeads: i32, headLength: i32, scale: f32, out: usize,
): void {
  clear(n * heads, headLength, out);
  sharing = heads / kvHeads;
  headFloats = headLength;
  scoreScale = scale;
  queryCount = n * sharing;
  queryRow = <usize>qStride << 2;
  queryStep = <usize>headLength << 2;
  recordStep = <usize>(headLength + TAIL) << 2;
  recordRow = <usize>heads * recordStep;
  scaleStep = scaleStride(blockTokens);
  const partBytes = <usize>headBytes(kvType, headLength, blockTokens);
  const tileTokens = min(TILE_TOKENS, (TILE_FLOATS / headLength) & ~7);
  for (let kvHead = 0; kvHead < kvHeads; kvHead++) {
    queries = q + <usize>(kvHead * sharing) * queryStep;
    records = out + <usize>(kvHead * sharing) * recordStep;
    for (let page = 0; page < pageCount; page++) {
      const part = <usize>load<i32>(pages + (<usize>page << 3)) + <usize>kvHead * partBytes;
      const position = load<i32>(pages + (<usize>page << 3), 4);
      // Behind the last row's own token nothing has been written.
      const written = min(blockTokens, firstPosition + n - position);
      for (let first = 0; first < written; first += tileTokens) {
        seenByFirst = firstPosition + 1 - position - first;
        attendTile(kvType, part, first, min(tileTokens, written - first), blockTokens, tileTokens);
      }
    }
  }
}

function clear(count: i32, headLength: i32, out: usize): void {
  const bytes = <usize>(headLength + TAIL) << 2;
  memory.fill(out, 0, <usize>count * bytes);
  for (let i = 0; i < count; i++) store<f32>(out + <usize>i * bytes + (<usize>headLength << 2), NOTHING);
}

/** All queries over `tokens` tokens of a page, from `first` on. */
function attendTile(kvType: i32, part: usize, first: i32, tokens: i32, blockTokens: i32, tileTokens: i32): void {
  keys = keysAt(kvType, part, first, headFloats);
  keyEight = keyEightBytes(kvType, headFloats);
  keyScales = keyScalesAt(kvType, part, first, headFloats, blockTokens);
  values = valuesAt(kvType, part, first, headFloats, blockTokens);
  valueEight = valueEightBytes(kvType, blockTokens);
  valueScales = valueScalesAt(kvType, part, first, headFloats, blockTokens);
  if (kvType == F32) return attendQueries<f32>(tokens);
  if (queryCount <= FEW_QUERIES) {
    if (kvType == BF16) attendQueries<u16>(tokens);
    else if (kvType == F16) attendQueries<i16>(tokens);
    else attendQueries<i8>(tokens);
    return;
  }
  unpackKeys(kvType, keys, keyScales, scaleStep, tokens, headFloats, KEYS);
  unpackValues(kvType, values, valueEight, valueScales, scaleStep, tokens, headFloats, VALUES, tileTokens);
  keys = KEYS;
  keyEight = keyEightBytes(F32, headFloats);
  values = VALUES;
  valueEight = valueEightBytes(F32, tileTokens);
  attendQueries<f32>(tokens);
}

/** All queries over the tile, as many at a time as share the reading of it. */
function attendQueries<T>(tokens: i32): void {
  // Rows before the tile's first token see 0 of it.
  let query = max(0, 1 - seenByFirst) * sharing;
  while (query < queryCount) {
    const left = queryCount - query;
    // Two threes are quicker than a four and a two.
    const count = left == 4 || left > 6 ? 4 : min(left, 3);
    // The last of them sees most.
    const seen = min(tokens, seenByFirst + (query + count - 1) / sharing);
    if (sizeof<T>() == 1) memory.fill(SCORES_0, 0, 4 * SCORES);
    if (count == 4) attendFour<T>(query, seen);
    else if (count == 3) attendThree<T>(query, seen);
    else if (count == 2) attendTwo<T>(query, seen);
    else attendOne<T>(query, seen);
    query += count;
  }
}

function attendFour<T>(query: i32, seen: i32): void {
  const vectors = (seen + 3) >> 2;
  const group = groupFloats<T>();
  const q0 = queryAt(query);
  const q1 = queryAt(query + 1);
  const q2 = queryAt(query + 2);
  const q3 = queryAt(query + 3);
  const c0 = recordAt(query);
  const c1 = recordAt(query + 1);
  const c2 = recordAt(query + 2);
  const c3 = recordAt(query + 3);
  for (let d = 0; d < headFloats; d += group) {
    const at = <usize>d << 2;
    const depth = <usize>min(group, headFloats - d);
    const scales = scalesOf(keyScales, d);
    multiplyFour<T>(
      true, q0 + at, q1 + at, q2 + at, q3 + at, depth, keys + <usize>(d * 8) * sizeof<T>(), keyEight, vectors,
      SCORES_0, SCORES_1, SCORES_2, SCORES_3, 0, 0, 0, 0, scales,
    );
  }
  const s0 = weigh(SCORES_0, vectors, query, c0);
  const s1 = weigh(SCORES_1, vectors, query + 1, c1);
  const s2 = weigh(SCORES_2, vectors, query + 2, c2);
  const s3 = weigh(SCORES_3, vectors, query + 3, c3);
  for (let d = 0; d < headFloats; d += group) {
    const at = <usize>d << 2;
    const scales = scalesOf(valueScales, d);
    const w0 = scaled<T>(SCORES_0, vectors, scales);
    const w1 = scaled<T>(SCORES_1, vectors, scales);
    const w2 = scaled<T>(SCORES_2, vectors, scales);
    const w3 = scaled<T>(SCORES_3, vectors, scales);
    multiplyFour<T>(
      false, w0, w1, w2, w3, <usize>seen, values + <usize>(d >> 3) * valueEight, valueEight,
      min(group, headFloats - d) >> 2, c0 + at, c1 + at, c2 + at, c3 + at, s0, s1, s2, s3, 0,
    );
  }
}

function attendThree<T>(query: i32, seen: i32): void {
  const vectors = (seen + 3) >> 2;
  const group = groupFloats<T>();
  const q0 = queryAt(query);
  const q1 = queryAt(query + 1);
  const q2 = queryAt(query + 2);
  const c0 = recordAt(query);
  const c1 = recordAt(query + 1);
  const c2 = recordAt(query + 2);
  for (let d = 0; d < headFloats; d += group) {
    const at = <usize>d << 2;
    const depth = <usize>min(group, headFloats - d);
    const scales = scalesOf(keyScales, d);
    multiplyThree<T>(
      true, q0 + at, q1 + at, q2 + at, depth, keys + <usize>(d * 8) * sizeof<T>(), keyEight, vectors,
      SCORES_0, SCORES_1, SCORES_2, 0, 0, 0, scales,
    );
  }
  const s0 = weigh(SCORES_0, vectors, query, c0);
  const s1 = weigh(SCORES_1, vectors, query + 1, c1);
  const s2 = weigh(SCORES_2, vectors, query + 2, c2);
  for (let d = 0; d < headFloats; d += group) {
    const at = <usize>d << 2;
    const scales = scalesOf(valueScales, d);
    const w0 = scaled<T>(SCORES_0, vectors, scales);
    const w1 = scaled<T>(SCORES_1, vectors, scales);
    const w2 = scaled<T>(SCORES_2, vectors, scales);
    multiplyThree<T>(
      false, w0, w1, w2, <usize>seen, values + <usize>(d >> 3) * valueEight, valueEight,
      min(group, headFloats - d) >> 2, c0 + at, c1 + at, c2 + at, s0, s1, s2, 0,
    );
  }
}

function attendTwo<T>(query: i32, seen: i32): void {
  const vectors = (seen + 3) >> 2;
  const group = groupFloats<T>();
  const q0 = queryAt(query);
  const q1 = queryAt(query + 1);
  const c0 = recordAt(query);
  const c1 = recordAt(query + 1);
  for (let d = 0; d < headFloats; d += group) {
    const at = <usize>d << 2;
    const depth = <usize>min(group, headFloats - d);
    const scales = scalesOf(keyScales, d);
    multiplyTwo<T>(
      true, q0 + at, q1 + at, depth, keys + <usize>(d * 8) * sizeof<T>(), keyEight, vectors,
      SCORES_0, SCORES_1, 0, 0, scales,
    );
  }
  const s0 = weigh(SCORES_0, vectors, query, c0);
  const s1 = weigh(SCORES_1, vectors, query + 1, c1);
  for (let d = 0; d < headFloats; d += group) {
    const at = <usize>d << 2;
    const scales = scalesOf(valueScales, d);
    const w0 = scaled<T>(SCORES_0, vectors, scales);
    const w1 = scaled<T>(SCORES_1, vectors, scales);
    multiplyTwo<T>(
      false, w0, w1, <usize>seen, values + <usize>(d >> 3) * valueEight, valueEight,
      min(group, headFloats - d) >> 2, c0 + at, c1 + at, s0, s1, 0,
    );
  }
}

function attendOne<T>(query: i32, seen: i32): void {
  const vectors = (seen + 3) >> 2;
  const group = groupFloats<T>();
  const q0 = queryAt(query);
  const c0 = recordAt(query);
  for (let d = 0; d < headFloats; d += group) {
    const at = <usize>d << 2;
    const depth = <usize>min(group, headFloats - d);
    const scales = scalesOf(keyScales, d);
    multiplyOne<T>(
      true, q0 + at, depth, keys + <usize>(d * 8) * sizeof<T>(), keyEight, vectors,
      SCORES_0, 0, scales,
    );
  }
  const s0 = weigh(SCORES_0, vectors, query, c0);
  for (let d = 0; d < headFloats; d += group) {
    const at = <usize>d << 2;
    const scales = scalesOf(valueScales, d);
    const w0 = scaled<T>(SCORES_0, vectors, scales);
    multiplyOne<T>(
      false, w0, <usize>seen, values + <usize>(d >> 3) * valueEight, valueEight,
      min(group, headFloats - d) >> 2, c0 + at, s0, 0,
    );
  }
}

/** Floats of a head with one scale: all where T needs 0. */
// @ts-ignore: decorator
@inline
function groupFloats<T>(): i32 {
  return sizeof<T>() == 1 ? 32 : headFloats;
}

/** A tile's scales for the group that dimension d begins. */
// @ts-ignore: decorator
@inline
function scalesOf(scales: usize, d: i32): usize {
  return scales + <usize>(d >> 5) * scaleStep;
}

// @ts-ignore: decorator
@inline
function queryAt(query: i32): usize {
  return queries + <usize>(query / sharing) * queryRow + <usize>(query % sharing) * queryStep;
}

// @ts-ignore: decorator
@inline
function recordAt(query: i32): usize {
  return records + <usize>(query / sharing) * recordRow + <usize>(query % sharing) * recordStep;
}

/** One query's weights times the scales of the tile's tokens, where T needs them. */
// @ts-ignore: decorator
@inline
function scaled<T>(weights: usize, vectors: i32, scales: usize): usize {
  if (sizeof<T>() > 1) return weights;
  const to = weights + SCALED;
  for (let at: usize = 0; at < <usize>vectors << 4; at += 16) {
    v128.store(to + at, f32x4.mul(v128.load(weights + at), v128.load(scales + at)));
  }
  return to;
}

/**
 * Turns one query's scores of a tile into weights, those of tokens it does not see into 0, and brings the largest score
 * and the sum of weights of its record up to date. Returns what the record's values must be multiplied by.
 */
function weigh(scores: usize, vectors: i32, query: i32, record: usize): f32 {
  const tail = record + queryStep;
  const end = scores + (<usize>vectors << 4);
  const nothing = f32x4.splat(NOTHING);
  const factor = f32x4.splat(scoreScale);
  const visible = i32x4.splat(seenByFirst + query / sharing);
  let token = i32x4(0, 1, 2, 3);
  let largest = v128.load32_splat(tail);
  const before = largest;
  for (let at = scores; at < end; at += 16) {
    const score = v128.bitselect(f32x4.mul(v128.load(at), factor), nothing, i32x4.lt_s(token, visible));
    v128.store(at, score);
    largest = f32x4.pmax(largest, score);
    token = i32x4.add(token, i32x4.splat(4));
  }
  const peak = f32x4.splat(largestLane(largest));
  let sum = f32x4.splat(0);
  for (let at = scores; at < end; at += 16) {
    const weight = weightOf(f32x4.sub(v128.load(at), peak));
    v128.store(at, weight);
    sum = f32x4.add(sum, weight);
  }
  const rescale = f32x4.extract_lane(weightOf(f32x4.sub(before, peak)), 0);
  store<f32>(tail, f32x4.extract_lane(peak, 0));
  store<f32>(tail, load<f32>(tail, 4) * rescale + sumOfLanes(sum), 4);
  return rescale;
}

// @ts-ignore: decorator
@inline
function weightOf(distance: v128): v128 {
  return v128.and(exponential(distance), f32x4.gt(distance, f32x4.splat(WEIGHTLESS)));
}

// @ts-ignore: decorator
@inline
function sumOfLanes(x: v128): f32 {
  const pairs = f32x4.add(x, i64x2.shuffle(x, x, 1, 0));
  return f32x4.extract_lane(pairs, 0) + f32x4.extract_lane(pairs, 1);
}

export function mergeAttention(
  partials: usize, partBytes: i32, parts: i32, n: i32, heads: i32, headLength: i32, out: usize, stride: i32,
): void {
  const valueBytes = <usize>headLength << 2;
  for (let i = 0; i < n; i++) {
    let to = out + (<usize>(i * stride) << 2);
    for (let head = 0; head < heads; head++) {
      mergeHead(partials, <usize>partBytes, parts, valueBytes, to);
      partials += valueBytes + (TAIL << 2);
      to += valueBytes;
    }
  }
}

function mergeHead(partial: usize, partBytes: usize, parts: i32, valueBytes: usize, out: usize): void {
  const end = partial + <usize>parts * partBytes;
  let peak = NOTHING;
  for (let part = partial; part < end; part += partBytes) peak = max(peak, load<f32>(part + valueBytes));
  let sum: f32 = 0;
  for (let part = partial; part < end; part += partBytes) {
    const weight = f32x4.extract_lane(weightOf(f32x4.splat(load<f32>(part + valueBytes) - peak)), 0);
    // A part's own place for padding keeps its weight.
    store<f32>(part + valueBytes, weight, 8);
    sum += weight * load<f32>(part + valueBytes, 4);
  }
  const inverse: f32 = sum > 0 ? 1 / sum : 0;
  for (let at: usize = 0; at < valueBytes; at += 16) {
    let total = f32x4.splat(0);
    for (let part = partial; part < end; part += partBytes) {
      total = f32x4.add(total, f32x4.mul(v128.load(part + at), v128.load32_splat(part + valueBytes, 8)));
    }
    v128.store(out + at, f32x4.mul(total, f32x4.splat(inverse)));
  }
}
