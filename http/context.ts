// Context of a route handler: the objects that a handler needs besides the request, such as models, model management, and the
// settings of the HTTP server.
import type { Agents } from "../actors/api/agent/agents.ts";
import type { Files } from "../actors/api/agent/files.ts";
import type { Sessions } from "../actors/api/agent/sessions.ts";
import type { Skills } from "../actors/api/agent/skills.ts";
import type { ImageGeneration } from "../actors/api/images/image-generation.ts";
import type { Inference } from "../actors/api/inference.ts";
import type { LoraAdapters } from "../actors/api/lora-adapters.ts";
import type { ModelLibrary, ModelManagement } from "../actors/api/model-management.ts";
import type { Speech } from "../actors/api/speech/speech.ts";
import type { Replicas } from "../actors/api/state/replicas.ts";
import type { Tuner } from "../actors/api/tuning.ts";
import type { MlcModel } from "../engines/files/mlc-folder.ts";
import type { ShownTokens } from "../engines/text/tokenizer/token-texts.ts";
import type { SystemInspector } from "../runtime/host/system.ts";
import type { Exchange } from "./exchange.ts";
import type { ActiveRequests } from "./observe/active-requests.ts";
import type { Log } from "./observe/log.ts";
import type { HttpMetrics } from "./observe/metrics/recorder.ts";
import type { Responses } from "./responses/responses.ts";
import type { RouteSettings } from "./route.ts";
import type { AnswerMemory } from "./shared/answer/answer-memory.ts";
import type { UnknownFields } from "./shared/unknown-fields.ts";
import type { SettingInForce } from "./system/settings.ts";

/** Settings of the HTTP server, as plain values. */
export interface HttpConfig extends RouteSettings {
  /** Path prefix under which a proxy or an embedding program serves the routes; "": no prefix. */
  readonly basePath: string;
  /** Milliseconds without output after which a stream sends an SSE comment line to keep the connection open; 0: never. */
  readonly keepAliveMs: number;
  /** Milliseconds without progress after which a client that does not read its response is disconnected. */
  readonly readerStallMs: number;
  readonly accessLog: boolean;
  /** Whether the access log includes the operations routes: health, metrics, documents. */
  readonly accessLogHealth: boolean;
  readonly disableRequestIdHeader: boolean;
  /** Disables metrics: nothing is counted, and GET /metrics responds with 503. */
  readonly disableMetrics: boolean;
  /** Maximum number of concurrent background responses. */
  readonly maxBackgroundResponses: number;
  /** Whether background responses are generated again if their server stops before their first output. */
  readonly restartsBackground: boolean;
  /** Number of sequences in the default model's queue at which /ready starts to respond with 503. */
  readonly readyMaxQueue: number;
  /** Whether text completions may be streamed. */
  readonly allowCompletionsStream: boolean;
  /** Listening address. */
  readonly host: string;
  /** Additional host names under which clients reach the server, for example the name of a proxy. */
  readonly allowedHosts: readonly string[];
  /**
   * Web origins that may use the server. If set, requests must also use a known host name; null: all origins and host names are
   * allowed.
   */
  readonly corsOrigins: readonly string[] | null;
  /** Whether unknown fields of inference requests are ignored or rejected. */
  readonly unknownFields: UnknownFields;
}

export interface Context {
  /** Whether the server is about to stop, so that clients should send requests elsewhere. */
  readonly isRetiring: () => boolean;
  /** Whether the models and adapters in the settings are still being loaded. */
  readonly isStarting: () => boolean;
  /** Information about the machine, and diagnostic checks. */
  readonly system: SystemInspector;
  readonly inference: Inference;
  readonly models: ModelManagement;
  /** Finds the best settings of a model by benchmarks. */
  readonly tuner: Tuner;
  /** Downloads and deletes models; null: clients may not. */
  readonly library: ModelLibrary | null;
  /** Models that browsers may copy and run on the visitor's GPU. */
  readonly webModels: readonly MlcModel[];
  /** Generates images from text; null: the server has no diffusion models. */
  readonly imageGeneration: ImageGeneration | null;
  /** LoRA adapters of the models; null if no model accepts adapters. */
  readonly lora: LoraAdapters | null;
  /**
   * Agent loop for requests with tools that run on the server; null: the server runs no tools and stores no sessions or files.
   */
  readonly agents: Agents | null;
  /** Storage of files, sessions and skills; null: the server stores none. */
  readonly files: Files | null;
  readonly sessions: Sessions | null;
  readonly skills: Skills | null;
  /** Other servers that share this server's state; null: none. */
  readonly replicas: Replicas | null;
  /** Synthesises speech and transcribes audio; null: the server has no speech models. */
  readonly speech: Speech | null;
  readonly config: HttpConfig;
  readonly log: Log;
  /**
   * Like `inference.tokenTexts`, but the result holds no reference to a request, so it may be kept after the request has ended.
   */
  readonly tokenTexts: (model: string) => ShownTokens;
  /** Memory budget of all responses in progress. */
  readonly answerMemory: AnswerMemory;
  /** Running and stored responses. */
  readonly responses: Responses;
  /** Metrics of the HTTP server; null if metrics are disabled. */
  readonly metrics: HttpMetrics | null;
  /** Inference requests in progress. */
  readonly active: ActiveRequests;
  /** Current values of the settings, without secrets. */
  readonly settings: readonly SettingInForce[];
}

/** Responds to one request through its exchange. If it throws, the exchange sends an error response. */
export type RouteHandler = (exchange: Exchange, context: Context) => void | Promise<void>;
