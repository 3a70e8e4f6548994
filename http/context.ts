// Context: what a route handler gets besides its request: the models, their management, and the settings of the HTTP server.
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

/** Settings of the HTTP server, as plain values. */
export interface HttpConfig {
  /** A silent stream gets a comment line after this many milliseconds; 0: never. */
  readonly keepAliveMs: number;
  /** A client that reads nothing for this many milliseconds is disconnected. */
  readonly readerStallMs: number;
  readonly accessLog: boolean;
  /** Log operations too: health, metrics, documents. */
  readonly accessLogHealth: boolean;
  readonly disableRequestIdHeader: boolean;
  /** Disable metrics: nothing is counted, and GET /metrics answers 503. */
  readonly disableMetrics: boolean;
  /** Most responses that run in the background at once. */
  readonly maxBackgroundResponses: number;
  /** Listening address. */
  readonly host: string;
  /** Further host names of the server, for example behind a proxy. */
  readonly allowedHosts: readonly string[];
  /** Web origins that may use the server, through known host names only; null: every origin and every host name. */
  readonly corsOrigins: readonly string[] | null;
  /** Let requests load and unload LoRA adapters, and show the adapters' sources. */
  readonly allowLoraUpdates: boolean;
}

export interface Context {
  /** Facts about the machine, and its checks. */
  readonly system: SystemInspector;
  readonly inference: Inference;
  readonly models: ModelManagement;
  /** null if no model takes adapters. */
  readonly lora: LoraAdapters | null;
  readonly config: HttpConfig;
  readonly log: Log;
  /** Like `inference.tokenTexts`, but holds nothing of an exchange, so it may outlive one. */
  readonly tokenTexts: (model: string) => ShownTokens;
  /** Memory of all answers in progress. */
  readonly answerMemory: AnswerMemory;
  /** Running and stored responses. */
  readonly responses: Responses;
  /** null if metrics are disabled. */
  readonly metrics: HttpMetrics | null;
}

/** Answers one request through its exchange. A thrown error becomes the error answer. */
export type RouteHandler = (exchange: Exchange, context: Context) => void | Promise<void>;
