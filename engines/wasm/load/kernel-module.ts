// Kernel module: the compiled kernels. Chooses the variant (relaxed SIMD or plain) that passes a self-test on this
// machine, and instantiates it on a thread's memory. Called once when a model is loaded, and once by each compute
// thread.
import { readFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { ServerError } from "../../../runtime/errors.ts";
import type { KernelExports } from "./kernel-exports.ts";

/**
 * Declares the part of WebAssembly that this file uses, because neither the es2023 library nor Node's types declare it.
 */
declare const WebAssembly: {
  validate(bytes: Uint8Array): boolean;
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Memory: new (limits: { initial: number; maximum: number; shared: true }) => KernelMemory;
  readonly Instance: new (module: object, imports: object) => { readonly exports: unknown };
};

/** The properties of a WebAssembly.Memory that this engine uses. */
export interface KernelMemory {
  /** Buffer that covers the current length of the memory. */
  readonly buffer: SharedArrayBuffer;
  /** Grows the memory by `pages` pages of 64 KiB. The memory is shared, so it grows for all threads that use it. */
  grow(pages: number): number;
}

export type Variant = "relaxed" | "plain";

/** Compiled kernels and their variant. Plain data, sent to every compute thread. */
export interface KernelModule {
  /** A WebAssembly.Module. */
  readonly module: object;
  readonly variant: Variant;
  /** Whether the dot instruction gives correct results for unsigned bytes above 127 too. */
  readonly wideDot: boolean;
  /**
   * Reason for choosing the plain variant; undefined if the relaxed variant was chosen, or if the user forced the plain
   * variant.
   */
  readonly plainBecause: string | undefined;
}

/**
 * Environment variable that forces a variant, and its valid values. "relaxed-narrow" is the relaxed variant with the
 * unsigned operand of the dot instruction limited to 7 bits.
 */
const variable = "TROUPE_WASM_KERNELS";
const settings = ["", "relaxed", "relaxed-narrow", "plain"];

const firstV8WithRightLiftoff = 12;
const largestNarrowOperand = 127;
const largestWideOperand = 255;
/**
 * Number of rounds of the self-test. A pause after each round gives V8 time to replace its baseline code by optimised
 * code.
 */
const testRounds = 3;
const callsPerRound = 400;
const pauseMs = 5;
const testBytes = 8192;
const testPages = 2;
const operandsAt = [65_536, 65_536 + testBytes] as const;
/**
 * Address of the look-up indices. Each index is below 16 and selects one of the first 16 bytes of the signed operand.
 */
const indicesAt = 65_536 + 2 * testBytes;
const indexBytes = 256;

/**
 * Compiles the kernels and picks a variant. Throws config_invalid if TROUPE_WASM_KERNELS names an unknown variant or
 * forces a variant that fails on this machine, `unsupported` if no variant works.
 */
export async function loadKernels(): Promise<KernelModule> {
  const setting = process.env[variable] ?? "";
  if (!settings.includes(setting)) {
    const known = settings.filter(Boolean).join(", ");
    throw new ServerError("config_invalid", `${variable} must be one of ${known}, or not be set; got "${setting}"`);
  }
  let plainBecause: string | undefined;
  if (setting !== "plain") {
    const relaxed = compile("relaxed");
    plainBecause = await findFault(relaxed, largestNarrowOperand);
    if (relaxed && plainBecause === undefined) {
      const wideDot = setting !== "relaxed-narrow" && (await findFault(relaxed, largestWideOperand)) === undefined;
      return { module: relaxed, variant: "relaxed", wideDot, plainBecause };
    }
  }
  if (setting.startsWith("relaxed")) {
    const message = `${variable}=${setting} asks for relaxed SIMD, but ${plainBecause}; unset it`;
    throw new ServerError("config_invalid", message);
  }
  const plain = compile("plain");
  const fault = await findFault(plain, largestNarrowOperand);
  if (plain && fault === undefined) return { module: plain, variant: "plain", wideDot: false, plainBecause };
  throw new ServerError("unsupported", `the wasm engine needs WebAssembly SIMD, but ${fault}; use --engine llama`, {
    param: "engine",
  });
}

/**
 * Creates a memory that threads can share. It can grow to `maximum` pages of 64 KiB; existing views of it stay valid.
 */
export function createMemory(pages: number, maximum = pages): KernelMemory {
  return new WebAssembly.Memory({ initial: pages, maximum, shared: true });
}

/** Instantiates the kernels on `memory`; the kernels reserve its first 64 KiB. Any thread may call this. */
export function instantiateKernels({ module, wideDot }: KernelModule, memory: KernelMemory): KernelExports {
  const kernels = instantiate(module, memory);
  kernels.useWideDot(wideDot ? 1 : 0);
  return kernels;
}

function instantiate(module: object, memory: KernelMemory): KernelExports {
  return new WebAssembly.Instance(module, { env: { memory } }).exports as KernelExports;
}

/** Compiles a variant. Returns undefined if this machine does not support its instructions. */
function compile(variant: Variant): object | undefined {
  const file = new URL(`../kernels/kernels-${variant}.wasm`, import.meta.url);
  let bytes: Uint8Array;
  try {
    bytes = readFileSync(file);
  } catch (cause) {
    throw new ServerError("internal", `expected the kernels at ${file.pathname}; run "npm run build"`, { cause });
  }
  if (variant === "relaxed") enableRelaxedSimd(bytes);
  return WebAssembly.validate(bytes) ? new WebAssembly.Module(bytes) : undefined;
}

/**
 * Enables relaxed SIMD in V8, for the whole process. V8 prints a warning about flags it does not know, so each flag is
 * set only if it is needed.
 */
function enableRelaxedSimd(bytes: Uint8Array): void {
  if (!WebAssembly.validate(bytes)) setFlagsFromString("--experimental-wasm-relaxed-simd");
  // The baseline compiler of older V8 versions has a bug: it drops the accumulator of the dot instruction.
  if (Number.parseInt(process.versions.v8, 10) < firstV8WithRightLiftoff) setFlagsFromString("--no-liftoff");
}

/**
 * Tests the instructions that only one of the two variants uses. Returns a description of the fault, or undefined. V8's
 * baseline compiler and optimizing compiler translate these instructions differently, so the test runs until the
 * optimizing compiler has replaced the baseline code.
 */
async function findFault(module: object | undefined, largest: number): Promise<string | undefined> {
  if (!module) return "this Node does not know the instructions";
  const memory = createMemory(testPages);
  const kernels = instantiate(module, memory);
  const expected = fillOperands(memory, largest);
  const expectedLookUp = fillIndices(memory);
  for (let round = 0; round < testRounds; round++) {
    for (let call = 0; call < callsPerRound; call++) {
      const got = kernels.probeAddDot(...operandsAt, testBytes);
      if (got !== expected) return `its dot product is ${got}; expected ${expected}`;
      if (largest > largestNarrowOperand) continue;
      const pairs = kernels.probePairDot(...operandsAt, testBytes);
      if (pairs !== expected) return `its dot product by pairs is ${pairs}; expected ${expected}`;
      const found = kernels.probeLookUp(operandsAt[0], indicesAt, indexBytes);
      if (found !== expectedLookUp) return `its look-up sum is ${found}; expected ${expectedLookUp}`;
    }
    await wait(pauseMs);
  }
  return undefined;
}

/** Writes the operands of the self-test, including groups of extreme values, and returns their dot product. */
function fillOperands({ buffer }: KernelMemory, largest: number): number {
  const [signedAt, unsignedAt] = operandsAt;
  const signed = new Int8Array(buffer, signedAt, testBytes);
  const unsigned = new Uint8Array(buffer, unsignedAt, testBytes);
  let dot = 0;
  for (let i = 0; i < testBytes; i++) {
    const extreme = (i & 64) !== 0;
    const a = extreme ? ((i & 128) !== 0 ? -128 : 127) : ((i * 167) & 255) - 128;
    const b = extreme ? largest : (i * 89 + (i >> 8)) % (largest + 1);
    signed[i] = a;
    unsigned[i] = b;
    dot += a * b;
  }
  return dot;
}

/**
 * Writes the look-up indices, in which each index occurs a different number of times. Returns the sum of the bytes that
 * they select.
 */
function fillIndices({ buffer }: KernelMemory): number {
  const table = new Int8Array(buffer, operandsAt[0], 16);
  const indices = new Uint8Array(buffer, indicesAt, indexBytes);
  let sum = 0;
  for (let i = 0; i < indexBytes; i++) {
    indices[i] = Math.floor(Math.sqrt(i));
    sum += table[indices[i] as number] as number;
  }
  return sum;
}
