// Owns one compute thread's part of the model: its slices of the weights and running a pass over them. Every thread runs the
// same program on its own rows of each matrix; after each product they exchange what they have computed, and everything
// that is not a product each of them computes for itself.
import { AdapterPass, type AdapterScratch } from "./adapters/pass.ts";
import { adapterPlaces } from "./adapters/places.ts";
import { type Blueprint, type DividedGraph, type DividedStep, divideGraph, type Share } from "./blueprint.ts";
import { Exchange } from "./exchange.ts";
import type { KernelExports } from "./kernel-exports.ts";
import { createMemory, instantiateKernels, type KernelMemory, type KernelModule } from "./kernel-module.ts";
import { Classifier } from "./mixture/classifier.ts";
import { MixtureWeights } from "./mixture/weights.ts";
import { Order } from "./order.ts";
import type { ThreadPages } from "./page-memory.ts";
import { fillRotation } from "./rotation.ts";
import type { SharedBlocks } from "./shared-blocks.ts";
import { Team } from "./team.ts";
import { ThreadKv } from "./thread-kv.ts";
import { layOut, longestMemoryPages, type ThreadMemory } from "./thread-memory.ts";
import { ThreadProducts } from "./thread-products.ts";
import { loadWeights } from "./weights.ts";

const floatBytes = 4;

type AttentionStep = Extract<DividedStep, { readonly kind: "attention" }>;
type FeedForwardStep = Extract<DividedStep, { readonly kind: "feedForward" }>;

export class ComputeThread {
  readonly team: Team;
  readonly order: Order;
  readonly #blueprint: Blueprint;
  readonly #divided: DividedGraph;
  readonly #index: number;
  readonly #kernels: KernelExports;
  readonly #at: ThreadMemory;
  /** It grows by adapters alone, and only from without: what is here never moves. */
  readonly memory: KernelMemory;
  readonly #bytes: Uint8Array;
  readonly #floats: Float32Array;
  readonly #rotation: Float32Array;
  readonly #exchange: Exchange;
  readonly #products: ThreadProducts;
  readonly #kv: ThreadKv;
  /** Null where the model takes none. */
  readonly #adapters: AdapterPass | null;
  /** Null where adapters are not weighed. */
  readonly #mixture: { readonly classifier: Classifier; readonly weights: MixtureWeights } | null;
  readonly #logits: Float32Array;

  constructor(blueprint: Blueprint, index: number, kernels: KernelModule, shared: SharedBlocks) {
    this.#blueprint = blueprint;
    this.#index = index;
    this.#divided = divideGraph(blueprint);
    this.team = new Team(shared.control, index, blueprint.threads);
    this.order = new Order(shared.order, blueprint);
    this.#at = layOut(blueprint, this.#divided, instantiateKernels(kernels, createMemory(1)), index);
    const { wasmPages, adapters, rotation } = this.#at;
    this.memory = createMemory(wasmPages, adapters ? longestMemoryPages : wasmPages);
    const { buffer } = this.memory;
    this.#kernels = instantiateKernels(kernels, this.memory);
    this.#bytes = new Uint8Array(buffer);
    this.#floats = new Float32Array(buffer);
    this.#rotation = new Float32Array(buffer, rotation, blueprint.passTokens * blueprint.shape.rotated);
    this.#logits = new Float32Array(shared.logits);
    this.#exchange = new Exchange(this.team, this.#at, this.#bytes, shared.bus);
    this.#products = new ThreadProducts(index, this.#kernels, this.#at, this.#exchange);
    this.#kv = new ThreadKv(blueprint, index, this.order, this.#kernels, this.#at, buffer);
    this.#mixture = this.#createMixture(shared.classifier);
    this.#adapters = adapters && this.#createAdapterPass(adapters, shared.adapterBus);
  }

  #createMixture(values: SharedArrayBuffer | null) {
    const { mixture } = this.#blueprint;
    if (!mixture || !values) return null;
    const divided = this.#divided;
    const floats = this.#floats;
    const places = adapterPlaces(divided);
    const parts = { blueprint: this.#blueprint, mixture, places, index: this.#index, order: this.order, floats };
    return {
      classifier: new Classifier(mixture, values, divided, this.#products, this.#at, floats),
      weights: new MixtureWeights(parts),
    };
  }

  #createAdapterPass(scratch: AdapterScratch, bus: SharedArrayBuffer): AdapterPass {
    return new AdapterPass({
      blueprint: this.#blueprint,
      divided: this.#divided,
      index: this.#index,
      order: this.order,
      kernels: this.#kernels,
      scratch,
      memory: this.memory.buffer,
      exchange: new Exchange(this.team, scratch, this.#bytes, bus),
      weights: this.#mixture?.weights ?? null,
    });
  }

  /** Its pages of the KV cache, for the leader to look after between passes. */
  get kvPages(): ThreadPages {
    const { kv, kvPageBytes, kvLayerBytes } = this.#at;
    return { memory: this.memory.buffer, kv, kvPageBytes, kvLayerBytes };
  }

  /** Reads and packs this thread's part of the model file. Throws model_file_invalid. */
  async load(onBytes: (bytes: number) => void): Promise<void> {
    await loadWeights(this.#blueprint, this.#divided, this.#index, this.#at, this.#kernels, this.#bytes, onBytes);
    this.#mixture?.classifier.load(this.#index, this.#kernels);
  }

  /** Runs the pass that the order describes; all threads call it. Returns when what comes of it is there. */
  runPass(): void {
    const { tokenCount, outputCount, isFirstPass } = this.order;
    this.#kv.beginPass();
    this.#adapters?.begin();
    fillRotation(this.order, this.#blueprint.shape, this.#rotation);
    this.#embed(tokenCount);
    for (const layer of this.#divided.layers) {
      for (const step of layer) this.#runStep(step, tokenCount);
      this.#kv.nextLayer();
    }
    if (isFirstPass) this.#classify(tokenCount);
    else if (outputCount > 0) this.#project(outputCount);
    this.team.barrier();
  }

  /**
   * Adds to `sum` the hidden states behind the output norm of `count` tokens of the pass that was just run. Every thread has
   * all hidden states: the leader alone is asked.
   */
  addPooled(firstToken: number, count: number, sum: Float32Array): void {
    const { width, epsilon } = this.#blueprint.shape;
    const { hidden, input, joined } = this.#at;
    const from = hidden + firstToken * width * floatBytes;
    this.#kernels.rmsNorm(from, this.#weight(this.#blueprint.graph.outputNorm.name), input, count, width, epsilon);
    const total = this.#floats.subarray(joined >>> 2, (joined >>> 2) + width);
    total.fill(0);
    this.#kernels.addRows(input, width, joined, 0, count, width);
    for (let i = 0; i < width; i++) sum[i] = (sum[i] as number) + (total[i] as number);
  }

  #runStep(step: DividedStep, n: number): void {
    switch (step.kind) {
      case "norm": {
        const { width, epsilon } = this.#blueprint.shape;
        this.#kernels.rmsNorm(this.#at.hidden, this.#weight(step.weight), this.#at.input, n, width, epsilon);
        return;
      }
      case "attention":
        this.#runAttention(step, n);
        return;
      case "feedForward":
        this.#runFeedForward(step, n);
    }
  }

  #runAttention({ input: projections, output, place }: AttentionStep, n: number): void {
    const { input, joined, slabs, slabBytes } = this.#at;
    const { width, heads, headLength } = this.#blueprint.shape;
    const attended = heads * headLength;
    this.#multiplyPlace(place, this.#products.own(projections), input, width, n, this.#products.ownSlab);
    this.#rotate(this.#products.own(projections), n);
    this.#products.exchange(projections, n);
    this.#products.join(projections, n);
    this.#kv.attend(joined, this.#products.ownSlab);
    const partialBytes = n * this.#kv.partialFloats * floatBytes;
    this.#exchange.slabs(() => partialBytes);
    this.#kernels.mergeAttention(slabs, slabBytes, this.team.size, n, heads, headLength, input, attended);
    this.#multiplyPlace(place + 1, this.#products.own(output), input, attended, n, this.#products.ownSlab);
    this.#products.addToHidden(output, n, width);
  }

  #runFeedForward({ gate, up, down, place }: FeedForwardStep, n: number): void {
    const { input, joined, gated } = this.#at;
    const { width, feedForward } = this.#blueprint.shape;
    this.#adapters?.reduce(place, input);
    const prepared = this.#products.multiply(this.#products.own(gate), input, width, n, this.#products.ownSlab);
    this.#products.multiply(this.#products.own(up), input, width, n, gated, prepared);
    this.#adapters?.exchange();
    this.#adapters?.add(place, this.#products.own(gate), this.#products.ownSlab);
    this.#adapters?.add(place, this.#products.own(up), gated);
    this.#kernels.swiglu(this.#products.ownSlab, gated, this.#products.ownSlab, n * this.#products.own(gate).stride);
    this.#products.exchange(gate, n);
    this.#products.join(gate, n);
    this.#multiplyPlace(place + 1, this.#products.own(down), joined, feedForward, n, this.#products.ownSlab);
    this.#products.addToHidden(down, n, width);
  }

  #weight(name: string): number {
    return this.#at.weights.get(name) as number;
  }

  /** Products and what adapters add to them: for matrices that are divided together and share their input. */
  #multiplyPlace(place: number, share: Share, x: number, columns: number, n: number, out: number): void {
    this.#adapters?.reduce(place, x);
    this.#products.multiply(share, x, columns, n, out);
    this.#adapters?.exchange();
    this.#adapters?.add(place, share, out);
  }

  /** Rotates the queries and keys among what this thread has just computed; their pieces are whole heads. */
  #rotate({ pieces, stride }: Share, n: number): void {
    const { heads, kvHeads, headLength, rotated } = this.#blueprint.shape;
    const neox = this.#blueprint.graph.pairing === "halves" ? 1 : 0;
    const rotatedColumns = (heads + kvHeads) * headLength;
    for (const { rows, slabColumn, column } of pieces) {
      if (column >= rotatedColumns) continue;
      const at = this.#products.ownSlab + slabColumn * floatBytes;
      this.#kernels.rope(at, stride, n, rows / headLength, headLength, rotated, this.#at.rotation, neox);
    }
  }

  /** Each thread looks up the tokens whose rows it has; together they are the hidden state's start. */
  #embed(n: number): void {
    const { tokens } = this.order;
    const { width } = this.#blueprint.shape;
    const { hidden } = this.#at;
    const [piece] = this.#products.own(this.#divided.embedding).pieces;
    const rowOf = (i: number) => (tokens[i] as number) - (piece?.firstRow ?? 0);
    const isOwn = (i: number) => piece !== undefined && rowOf(i) >= 0 && rowOf(i) < piece.rows;
    const bytes = width * floatBytes;
    for (let i = 0; piece && i < n; i++) {
      const { type, name } = piece.matrix.tensor;
      if (isOwn(i)) this.#kernels.readRow(type, this.#weight(name), rowOf(i), piece.padded, width, hidden + i * bytes);
    }
    this.#exchange.rows(hidden, n, bytes, isOwn);
  }

  /** Weighs the adapters of every token of a mixture's first pass. */
  #classify(n: number): void {
    if (!this.#mixture) return;
    const { classifier, weights } = this.#mixture;
    const { width, epsilon } = this.#blueprint.shape;
    const { hidden, input } = this.#at;
    this.#kernels.rmsNorm(hidden, this.#weight(this.#blueprint.graph.outputNorm.name), input, n, width, epsilon);
    weights.take(classifier.run(input, n));
  }

  /** Logits of the tokens that want them: every thread writes its part of the vocabulary. */
  #project(outputs: number): void {
    const { order } = this;
    const { width, epsilon, vocabSize } = this.#blueprint.shape;
    const { hidden, input, joined, logits } = this.#at;
    const share = this.#products.own(this.#divided.output);
    for (let i = 0; i < outputs; i++) {
      const from = hidden + (order.outputs[i] as number) * width * floatBytes;
      this.#kernels.copyRows(from, width, joined + i * width * floatBytes, width, 1, width);
    }
    this.#kernels.rmsNorm(joined, this.#weight(this.#blueprint.graph.outputNorm.name), input, outputs, width, epsilon);
    this.#multiplyPlace(this.#divided.outputPlace, share, input, width, outputs, logits);
    for (const { firstRow, rows, slabColumn } of share.pieces) {
      for (let i = 0; i < outputs; i++) {
        const from = (logits >>> 2) + i * share.stride + slabColumn;
        const to = (order.firstLogits + i) * vocabSize + firstRow;
        this.#logits.set(this.#floats.subarray(from, from + rows), to);
      }
    }
  }
}
