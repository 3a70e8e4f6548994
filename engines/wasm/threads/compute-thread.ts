// Compute thread: holds its slices of the weights and runs passes over them. Every thread runs the same program on its
// own rows of each matrix and its own pages of the KV cache. After each product and each attention, every thread gets
// the results of all threads. Most other computations are repeated by every thread.
import { AdapterPass, type AdapterScratch } from "../adapters/pass.ts";
import { adapterSites } from "../adapters/sites.ts";
import { AudioPass } from "../audio/audio-pass.ts";
import { ConformerPass } from "../audio/conformer/conformer-pass.ts";
import { ConvolutionModule } from "../audio/conformer/convolution-module.ts";
import { RelativeAttention } from "../audio/conformer/relative-attention.ts";
import type { Rope } from "../graph/ropes.ts";
import type { ThreadPages } from "../kv/page-memory.ts";
import { ThreadKv } from "../kv/thread-kv.ts";
import type { KernelExports } from "../load/kernel-exports.ts";
import { createMemory, instantiateKernels, type KernelMemory, type KernelModule } from "../load/kernel-module.ts";
import { loadWeights } from "../load/weights.ts";
import { Classifier } from "../mixture/classifier.ts";
import { MixtureWeights } from "../mixture/weights.ts";
import { AttentionBlock } from "../pass/attention-block.ts";
import { EmbeddingTables } from "../pass/embedding-tables.ts";
import { Experts } from "../pass/experts.ts";
import { FeedForward } from "../pass/feed-forward.ts";
import { InputCollector } from "../pass/input-collector.ts";
import { Pooler } from "../pass/pooler.ts";
import { fillRotation } from "../pass/rotation.ts";
import { multiplyAtSite, type StepParts } from "../pass/step-runner.ts";
import { type DividedGraph, type DividedStep, divideGraph, type PartitionPlan } from "../plan/partition-plan.ts";
import { PassDescriptor } from "../plan/pass-descriptor.ts";
import { VisionPass } from "../vision/vision-pass.ts";
import { AllGather } from "./all-gather.ts";
import type { SharedBlocks } from "./shared-blocks.ts";
import { ThreadGroup } from "./thread-group.ts";
import { layOut, longestMemoryPages, type ThreadMemory } from "./thread-memory.ts";
import { ThreadNorms } from "./thread-norms.ts";
import { ThreadProducts } from "./thread-products.ts";

const floatBytes = 4;

export class ComputeThread {
  readonly group: ThreadGroup;
  readonly pass: PassDescriptor;
  readonly #plan: PartitionPlan;
  readonly #divided: DividedGraph;
  readonly #index: number;
  readonly #kernels: KernelExports;
  readonly #at: ThreadMemory;
  /** The thread's memory. It grows only when memory for adapters is added; existing addresses never move. */
  readonly memory: KernelMemory;
  readonly #bytes: Uint8Array;
  readonly #floats: Float32Array;
  /** Rotation tables of the rotary position embedding (RoPE), one per `Rope` of the model. */
  readonly #rotations: readonly Float32Array[];
  readonly #allGather: AllGather;
  readonly #norms: ThreadNorms;
  readonly #products: ThreadProducts;
  readonly #kv: ThreadKv;
  /** Computes the LoRA adapters' part of a pass; null if the model cannot have adapters. */
  readonly #adapters: AdapterPass | null;
  /**
   * Classifier of an X-LoRA mixture, and the adapter weights made from its outputs; null if the model is not an X-LoRA
   * mixture.
   */
  readonly #mixture: { readonly classifier: Classifier; readonly weights: MixtureWeights } | null;
  readonly #parts: StepParts;
  readonly #attention: AttentionBlock;
  readonly #feedForward: FeedForward;
  /** Runs the mixture-of-experts steps; null if the model has no experts. */
  readonly #experts: Experts | null;
  /** Run the steps that only conformers have; null for models without conformer layers. */
  readonly #relativeAttention: RelativeAttention | null;
  readonly #convolutionModule: ConvolutionModule | null;
  /** Adds the table rows of position and token type to the embedding; null if the model has no such tables. */
  readonly #tables: EmbeddingTables | null;
  /**
   * Computes the layers of an image or audio encoder before and after its transformer layers; null for models that read
   * tokens.
   */
  readonly #ends: VisionPass | AudioPass | ConformerPass | null;
  /** Input rows that replace the embeddings of tokens; see PassDescriptor.tokens. */
  readonly inputRows: Float32Array;
  /** Embeddings of the last image tile or audio window, on the leader only; empty for models that read tokens. */
  mediaEmbeddings: Float32Array = new Float32Array(0);
  readonly #logits: Float32Array;

  constructor(plan: PartitionPlan, index: number, kernels: KernelModule, shared: SharedBlocks) {
    this.#plan = plan;
    this.#index = index;
    this.#divided = divideGraph(plan);
    this.group = new ThreadGroup(shared.control, index, plan.threads);
    this.pass = new PassDescriptor(shared.pass, plan);
    this.#at = layOut(plan, this.#divided, instantiateKernels(kernels, createMemory(1)), index);
    const { wasmPages, adapters, rotation, rotationBytes } = this.#at;
    this.memory = createMemory(wasmPages, adapters ? longestMemoryPages : wasmPages);
    const { buffer } = this.memory;
    this.#kernels = instantiateKernels(kernels, this.memory);
    this.#bytes = new Uint8Array(buffer);
    this.#floats = new Float32Array(buffer);
    const rotated = plan.passTokens * plan.shape.rotated;
    this.#rotations = plan.shape.ropes.map(
      (_, rope) => new Float32Array(buffer, rotation + rope * rotationBytes, rotated),
    );
    this.#logits = new Float32Array(shared.logits);
    this.#allGather = new AllGather(this.group, this.#at, this.#bytes, shared.gatherBuffer);
    this.#norms = new ThreadNorms(plan, this.#kernels, this.#at);
    const lent = { kernels: this.#kernels, at: this.#at, allGather: this.#allGather, norms: this.#norms };
    this.#products = new ThreadProducts({ ...lent, shape: plan.shape, index });
    this.#kv = new ThreadKv(plan, index, this.pass, this.#kernels, this.#at, buffer);
    this.#mixture = this.#createMixture(shared.classifier);
    this.#adapters = adapters && this.#createAdapterPass(adapters, shared.adapterGatherBuffer);
    const parts: StepParts = { ...lent, plan, products: this.#products, adapters: this.#adapters };
    this.#parts = parts;
    this.#attention = new AttentionBlock(parts, this.#kv);
    this.#feedForward = new FeedForward(parts);
    this.#experts = plan.shape.experts && new Experts(parts, plan.shape.experts, this.#floats);
    const { embeddingNorm: norm, positions, tokenType, vision, audio, conformer } = plan.graph;
    const hasTables = norm !== null || positions !== null || tokenType !== null;
    this.#tables = hasTables
      ? new EmbeddingTables({ ...parts, pass: this.pass, tables: this.#divided, norm, floats: this.#floats })
      : null;
    this.inputRows = new Float32Array(shared.inputRows);
    const { inputRows, pass } = this;
    const ends = { ...parts, pass, divided: this.#divided, floats: this.#floats, inputRows };
    const encoder = vision ? new VisionPass({ ...ends, vision }) : audio ? new AudioPass({ ...ends, audio }) : null;
    this.#ends = conformer ? new ConformerPass({ ...ends, conformer }) : encoder;
    const tokenParts = { ...parts, index, floats: this.#floats };
    this.#relativeAttention = conformer?.subsampling ? new RelativeAttention(tokenParts) : null;
    this.#convolutionModule = conformer?.subsampling ? new ConvolutionModule(tokenParts) : null;
  }

  #createMixture(values: SharedArrayBuffer | null) {
    const { mixture } = this.#plan;
    if (!mixture || !values) return null;
    const divided = this.#divided;
    const floats = this.#floats;
    const sites = adapterSites(divided);
    const parts = { plan: this.#plan, mixture, sites, index: this.#index, pass: this.pass, floats };
    return {
      classifier: new Classifier(mixture, values, divided, this.#products, this.#at, floats),
      weights: new MixtureWeights(parts),
    };
  }

  #createAdapterPass(scratch: AdapterScratch, gatherBuffer: SharedArrayBuffer): AdapterPass {
    return new AdapterPass({
      plan: this.#plan,
      divided: this.#divided,
      index: this.#index,
      pass: this.pass,
      kernels: this.#kernels,
      scratch,
      memory: this.memory.buffer,
      allGather: new AllGather(this.group, scratch, this.#bytes, gatherBuffer),
      weights: this.#mixture?.weights ?? null,
    });
  }

  /** This thread's pages of the KV cache; the leader accesses them between passes. */
  get kvPages(): ThreadPages {
    const { kv, kvPageBytes, kvLayerBytes } = this.#at;
    return { memory: this.memory.buffer, kv, kvPageBytes, kvLayerBytes };
  }

  /** Reads and packs this thread's part of the model file. Throws model_file_invalid if the file is damaged. */
  async load(onBytes: (bytes: number) => void): Promise<void> {
    await loadWeights(this.#plan, this.#divided, this.#index, this.#at, this.#kernels, this.#bytes, onBytes);
    this.#mixture?.classifier.load(this.#index, this.#kernels);
  }

  /**
   * Runs the pass that the descriptor describes. All threads call this method. The results are complete on return. Only
   * the leader gives `beforeLayer`. If `beforeLayer` throws, the leader must call the group's fail().
   */
  runPass(beforeLayer?: () => void): void {
    const { tokenCount, outputCount, isFirstPass } = this.pass;
    this.#kv.beginPass();
    this.#adapters?.begin();
    this.#rotations.forEach((table, i) => {
      fillRotation(this.pass, this.#plan.shape.ropes[i] as Rope, table);
    });
    this.#embed(tokenCount);
    let index = 0;
    for (const layer of this.#divided.layers) {
      beforeLayer?.();
      for (const step of layer) this.#runStep(step, tokenCount);
      if (this.#ends instanceof VisionPass) this.#ends.finishLayer(index, this.#index === 0);
      else if (index < this.#plan.shape.stackedInputs) this.#addStacked(tokenCount, index);
      this.#kv.nextLayer();
      index++;
    }
    if (this.#ends) this.#projectMedia(this.#ends);
    else if (isFirstPass) this.#classify(tokenCount);
    else if (outputCount > 0) this.#project(outputCount);
    this.group.barrier();
  }

  /**
   * Creates a pooler of the hidden states of the last pass. Only the leader uses one, although every thread has all
   * hidden states.
   */
  createPooler(): Pooler {
    const { graph, shape } = this.#plan;
    const { scoring, dense } = this.#divided;
    const lent = { kernels: this.#kernels, norms: this.#norms, products: this.#products, at: this.#at };
    return new Pooler({
      ...lent,
      pooling: graph.pooling,
      outputNorm: graph.outputNorm,
      shape,
      scoring,
      dense,
      floats: this.#floats,
    });
  }

  /** Creates the collector for the inputs of all matrices. Only the leader needs it, because every thread has the same inputs. */
  createCollector(): InputCollector {
    return new InputCollector(this.#divided, this.#products, this.#floats);
  }

  #runStep(step: DividedStep, n: number): void {
    const { hidden, input } = this.#at;
    switch (step.kind) {
      case "norm":
        this.#norms.run(step.norm, hidden, input, n);
        return;
      case "hiddenNorm":
        this.#norms.run(step.norm, hidden, hidden, n);
        return;
      case "attention":
        this.#attention.run(step, n);
        return;
      case "feedForward":
        this.#feedForward.run(step, n);
        return;
      case "experts":
        this.#experts?.run(step, n);
        return;
      case "relativeAttention":
        this.#relativeAttention?.run(step, n);
        return;
      case "convolutionModule":
        this.#convolutionModule?.run(step, n);
    }
  }

  /**
   * Computes the first hidden state. Each thread looks up the tokens whose embedding rows are in its memory. The
   * threads then exchange these rows.
   */
  #embed(n: number): void {
    if (this.#ends) {
      this.#ends.embed(n);
      this.#tables?.add(n);
      return;
    }
    const { tokens } = this.pass;
    const { width, embeddingScale } = this.#plan.shape;
    const { hidden } = this.#at;
    const [piece] = this.#products.own(this.#divided.embedding).pieces;
    const rowOf = (i: number) => (tokens[i] as number) - (piece?.firstRow ?? 0);
    const isOwn = (i: number) => piece !== undefined && rowOf(i) >= 0 && rowOf(i) < piece.rows;
    const bytes = width * floatBytes;
    for (let i = 0; piece && i < n; i++) {
      const { name, tensor } = piece.matrix;
      const matrix = this.#at.weights.get(name) as number;
      if (isOwn(i)) this.#kernels.readRow(tensor.type, matrix, rowOf(i), piece.padded, width, hidden + i * bytes);
    }
    this.#allGather.rows(hidden, n, bytes, isOwn);
    if (embeddingScale !== 1) this.#kernels.scaleRows(hidden, width, n, width, embeddingScale);
    this.#tables?.add(n);
    if (this.#plan.inputFloats > 0) this.#takeInputRows(n);
  }

  /** Replaces the hidden states of tokens with negative ids by their input rows. Input rows are not multiplied by the embedding scale. */
  #takeInputRows(n: number): void {
    const { tokens } = this.pass;
    const { inputFloats, shape } = this.#plan;
    const { width } = shape;
    const hidden = this.#at.hidden >>> 2;
    for (let i = 0; i < n; i++) {
      if ((tokens[i] as number) >= 0) continue;
      const from = i * inputFloats;
      this.#floats.set(this.inputRows.subarray(from, from + width), hidden + i * width);
    }
  }

  /** Adds vector `index` of the further vectors of each input row to the hidden state of its token; see Traits.stackedInputs. */
  #addStacked(n: number, index: number): void {
    const { tokens } = this.pass;
    const { inputFloats, shape } = this.#plan;
    if (inputFloats === 0) return;
    const { width } = shape;
    const floats = this.#floats;
    for (let i = 0; i < n; i++) {
      if ((tokens[i] as number) >= 0) continue;
      const from = i * inputFloats + (index + 1) * width;
      const to = (this.#at.hidden >>> 2) + i * width;
      for (let column = 0; column < width; column++)
        floats[to + column] = (floats[to + column] as number) + (this.inputRows[from + column] as number);
    }
  }

  #projectMedia(ends: VisionPass | AudioPass | ConformerPass): void {
    const projected = ends.project();
    if (this.#index === 0) this.mediaEmbeddings = ends.embeddings(projected);
  }

  /** Computes the adapter weights of every token, at the end of the first pass of an X-LoRA mixture. */
  #classify(n: number): void {
    if (!this.#mixture) return;
    const { classifier, weights } = this.#mixture;
    const { hidden, input } = this.#at;
    this.#norms.run(this.#plan.graph.outputNorm, hidden, input, n);
    weights.take(classifier.run(input, n));
  }

  /** Computes the logits of the output tokens. Every thread writes its part of the vocabulary. */
  #project(outputs: number): void {
    const { pass } = this;
    const { shape, graph } = this.#plan;
    const { width, vocabSize } = shape;
    const { hidden, input, joined, logits } = this.#at;
    const { outputSite: site, output } = this.#divided;
    const share = this.#products.own(output);
    for (let i = 0; i < outputs; i++) {
      const from = hidden + (pass.outputs[i] as number) * width * floatBytes;
      this.#kernels.copyRows(from, width, joined + i * width * floatBytes, width, 1, width);
    }
    this.#norms.run(graph.outputNorm, joined, input, outputs);
    multiplyAtSite(this.#parts, share, { site, x: input, columns: width, n: outputs }, logits);
    this.#finishLogits(logits, outputs, share.stride);
    for (const { firstRow, rows, slabColumn } of share.pieces) {
      for (let i = 0; i < outputs; i++) {
        const from = (logits >>> 2) + i * share.stride + slabColumn;
        const to = (pass.firstLogits + i) * vocabSize + firstRow;
        this.#logits.set(this.#floats.subarray(from, from + rows), to);
      }
    }
  }

  #finishLogits(logits: number, outputs: number, stride: number): void {
    const { logitScale, logitSoftcap } = this.#plan.shape;
    if (logitScale !== 1) this.#kernels.scaleRows(logits, stride, outputs, stride, logitScale);
    if (logitSoftcap > 0) this.#kernels.softcap(logits, outputs * stride, logitSoftcap);
  }
}
