// Owns what a route handler is given beside its request: the models, what manages them, and the settings of the
// HTTP front.
import type { Inference } from "../actors/api/inference.ts";
import type { LoraAdapters } from "../actors/api/lora-adapters.ts";
import type { ModelManagement } from "../actors/api/model-management.ts";
import type { ShownTokens } from "../engines/text/tokenizer/token-texts.ts";
import type { SystemInspector } from "../runtime/host/system.ts";
import type { Exchange } from "./exchange.ts";
import type { Log } from "./observe/log.ts";
import type { HttpMetrics } from "./observe/metrics/recorder.ts";
import type { Responses } from "./responses/responses.ts";
import type { AnswerMemory } from "./shared/answer/answer-memory.ts";

/** Settings of the HTTP front, as plain values. */
export interface HttpConfig {
  /** Silence after which a stream gets a comment line; 0 = never. */
  readonly keepAliveMs: number;
  /** A client that reads nothing for this long is cut off. */
  readonly readerStallMs: number;
  readonly accessLog: boolean;
  /** Also log operations: health, metrics, documents. */
  readonly accessLogHealth: boolean;
  readonly disableRequestIdHeader: boolean;
  /** Count nothing, and answer GET /metrics with 503. */
  readonly disableMetrics: boolean;
  /** Most responses that run at once with no client to wait for them. */
  readonly maxBackgroundResponses: number;
  /** The address the server listens on. */
  readonly host: string;
  /** Names it goes by besides, behind a proxy say. */
  readonly allowedHosts: readonly string[];
  /** Web pages of these alone may use the server, by hosts that are known; null: of any, by any. */
  readonly corsOrigins: readonly string[] | null;
  /** Let requests load and unload LoRA adapters, and show where those come from. */
  readonly allowLoraUpdates: boolean;
}

export interface Context {
  /** What the machine is, and what is wrong with it. */
  readonly system: SystemInspector;
  readonly inference: Inference;
  readonly models: ModelManagement;
  /** null where no model takes any. */
  readonly lora: LoraAdapters | null;
  readonly config: HttpConfig;
  readonly log: Log;
  /** As that of `inference`, for what outlives its exchange: it holds nothing of one. */
  readonly tokenTexts: (model: string) => ShownTokens;
  /** Of all answers under way. */
  readonly answerMemory: AnswerMemory;
  /** Those that are generated now, and those that are kept. */
  readonly responses: Responses;
  /** null where metrics are switched off. */
  readonly metrics: HttpMetrics | null;
}

/** Answers one request through its exchange. What it throws becomes the error answer. */
export type RouteHandler = (exchange: Exchange, context: Context) => void | Promise<void>;
