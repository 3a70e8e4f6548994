// State client: the main thread's client of the state thread. Starts the thread, restarts it whenever it ends, and forwards
// requests from http/ to the actors of that thread.
import type { MessageOf, Protocol } from "../../runtime/actor/behaviour.ts";
import { type RestartPolicy, type Supervisor, supervise } from "../../runtime/actor/supervision.ts";
import { ActorSystem } from "../../runtime/actor/system.ts";
import { type Deferred, deferred } from "../../runtime/deferred.ts";
import type { Endpoint } from "../../runtime/endpoint/endpoint.ts";
import { type ErrorRecord, ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type { Logger } from "../../runtime/log/log.ts";
import { shownUrl } from "../../runtime/store/redis/redis-url.ts";
import { type Place, spawnPlace } from "../../runtime/thread/place.ts";
import type { Files } from "../api/agent/files.ts";
import type { Sessions } from "../api/agent/sessions.ts";
import type { Skills } from "../api/agent/skills.ts";
import type { DesiredAdapters } from "../api/state/desired-adapters.ts";
import type { McpSessions } from "../api/state/mcp-sessions.ts";
import type { AnswerReplica, QuestionKind, Replicas, SharedStateHealth } from "../api/state/replicas.ts";
import type { StoredResponses } from "../api/stored-responses.ts";
import type { StatePlaceInit, StatePlaceReady } from "../messages.ts";
import { stateModule } from "../placement.ts";
import type { ReplicaProtocol } from "../state/shared/shared-state.ts";
import type { StateReport } from "../state/state-place.ts";
import { storeMetrics } from "./metrics/store-metrics.ts";

const startTimeoutMs = 30_000;
/** Milliseconds after a reconnection until all replicas are assumed to be connected again. */
const reconnectMs = 5000;
const skillTimeoutMs = 10 * 60_000;
/** After the first successful start, restarts are unlimited, because a full disk may have free space again later. */
const restartPolicy: RestartPolicy = {
  kind: "restart",
  minBackoffMs: 500,
  maxBackoffMs: 30_000,
  resetAfterMs: 60_000,
  maxRestarts: Number.POSITIVE_INFINITY,
};

export interface StateFrontOptions {
  readonly init: StatePlaceInit;
  readonly log: Logger;
  /** Minimum delay between restarts in ms; absent = the default. */
  readonly minBackoffMs?: number;
}

interface AskedQuestion {
  readonly kind: QuestionKind;
  readonly question: unknown;
}

type QuestionReport = StateReport & { readonly kind: "question" };

/** Protocol of the actor `files`. */
type FileProtocol = Omit<Files, "stagingFolder">;
/** Protocol of the actor `adapters`. */
type AdapterProtocol = Omit<DesiredAdapters, "watch">;
/** Protocol of the actor `skills`. */
type SkillProtocol = Omit<Skills, "stagingFolder">;

export class StateClient {
  readonly responses: StoredResponses;
  readonly files: Files;
  readonly sessions: Sessions;
  readonly skills: Skills;
  /** Other replicas with the same state; null = the state is not shared. */
  readonly replicas: Replicas | null;
  /** Sessions of the MCP server, shared by all replicas; null = the state is not shared. */
  readonly mcpSessions: McpSessions | null;
  /** LoRA adapters that clients have loaded on any replica; null = the state is not shared. */
  readonly adapters: DesiredAdapters | null;
  readonly #options: StateFrontOptions;
  readonly #system = new ActorSystem("front");
  #supervisor: Supervisor | null = null;
  #endpoint: Endpoint | null = null;
  #ready: StatePlaceReady | null = null;
  #health: SharedStateHealth = { isConnected: false, reason: "it is being connected" };
  /** Time of the last loss or reconnection of the shared state, in milliseconds of performance.now(). */
  #backMs = Number.NEGATIVE_INFINITY;
  /** Set while the thread rewrites data that Redis may have lost; null at other times. */
  #restoring: Deferred<void> | null = null;
  readonly #adapterListeners: (() => void)[] = [];
  /** Requests of other replicas that the current thread has passed on before it was up. */
  #earlyQuestions: QuestionReport[] = [];
  readonly #handlers = new Map<QuestionKind, AnswerReplica<QuestionKind>[]>();

  constructor(options: StateFrontOptions) {
    this.#options = options;
    const stored = this.#asker<StoredResponses>("responses");
    this.responses = {
      add: stored("add"),
      update: stored("update"),
      begin: stored("begin"),
      claim: stored("claim"),
      giveUp: stored("giveUp"),
      release: stored("release"),
      find: stored("find"),
      list: stored("list"),
      delete: stored("delete"),
      slice: stored("slice"),
      page: stored("page"),
      item: stored("item"),
      history: stored("history"),
    };
    const file = this.#asker<FileProtocol>("files");
    this.files = this.#withStaging<FileProtocol>("stagingFolder", {
      add: file("add"),
      list: file("list"),
      find: file("find"),
      content: file("content"),
      delete: file("delete"),
    });
    const session = this.#asker<Sessions>("sessions");
    this.sessions = {
      find: session("find"),
      list: session("list"),
      match: session("match"),
      update: session("update"),
      put: session("put"),
      delete: session("delete"),
    };
    const mcp = this.#asker<McpSessions>("mcpSessions");
    const shares = options.init.shared !== null;
    this.mcpSessions = shares ? { put: mcp("put"), find: mcp("find"), delete: mcp("delete") } : null;
    const adapter = this.#asker<AdapterProtocol>("adapters");
    const listAdapters = adapter("list");
    this.adapters =
      options.init.shared === null
        ? null
        : {
            list: () => listAdapters(undefined),
            set: adapter("set"),
            watch: (listener) => void this.#adapterListeners.push(listener),
          };
    this.replicas = options.init.shared === null ? null : this.#replicasOf();
    const skill = this.#asker<SkillProtocol>("skills");
    // An upload or a download waits for earlier ones, and may then use its whole time limit.
    const slow = this.#asker<SkillProtocol>("skills", skillTimeoutMs);
    const list = skill("list");
    this.skills = this.#withStaging<SkillProtocol>("skillStagingFolder", {
      add: slow("add"),
      list: () => list(undefined),
      find: skill("find"),
      content: skill("content"),
      pack: slow("pack"),
      delete: skill("delete"),
      deleteVersion: skill("deleteVersion"),
    });
  }

  /** Salt for hashing client names, the same on all replicas; null = the state is not shared, or the thread has not started. */
  get clientSalt(): string | null {
    return this.#ready?.clientSalt ?? null;
  }

  /** Starts the thread. A failed start is not retried: rejects, with config_invalid if the folder cannot be used. */
  async start(): Promise<void> {
    const { init, log, minBackoffMs = restartPolicy.minBackoffMs } = this.#options;
    let wasUp = false;
    await new Promise<void>((resolve, reject) => {
      this.#supervisor = supervise<StatePlaceReady>({
        name: "state",
        start: (signal) => this.#spawn(signal, wasUp),
        policy: { ...restartPolicy, minBackoffMs },
        onUp: (place) => {
          this.#endpoint = place.endpoint;
          this.#ready = place.ready;
          this.#health = { isConnected: true, reason: "" };
          for (const report of this.#earlyQuestions.splice(0)) void this.#answer(report);
          if (init.shared !== null) {
            const { replica, url } = init.shared;
            log.info({ replica, at: shownUrl(url) }, "the state is shared with the other replicas");
          }
          wasUp = true;
          resolve();
        },
        onDown: (exit, next) => {
          this.#endpoint = null;
          this.#health = { isConnected: false, reason: "the state thread has ended" };
          this.#setRestoring(false);
          // A failed first start is not logged here, because start() rejects with the error.
          if (exit.orderly || !wasUp) return;
          log.error(
            { reason: exit.reason, retryInMs: next?.retryInMs },
            "the state place ended; nothing is kept until it is back",
          );
        },
        onEscalate: reject,
      });
    });
  }

  async #spawn(signal: AbortSignal, isRestart: boolean): Promise<Place<StatePlaceReady>> {
    const { log } = this.#options;
    const init: StatePlaceInit = { ...this.#options.init, isRestart };
    this.#earlyQuestions = [];
    const onProgress = (told: unknown): void => {
      const report = told as StateReport;
      if (report.kind === "warning") log.warn(report.fields, report.message);
      else if (report.kind === "health") this.#told(report.health);
      else if (report.kind === "restoring") this.#setRestoring(report.isRestoring);
      else if (report.kind === "adapters") for (const listener of this.#adapterListeners) listener();
      else if (this.#endpoint === null) this.#earlyQuestions.push(report);
      else void this.#answer(report);
    };
    const place = { name: "state", module: stateModule, init, kind: "thread", startTimeoutMs } as const;
    try {
      return await spawnPlace({ ...place, signal, onProgress });
    } catch (thrown) {
      const { code, message, param } = toErrorRecord(thrown);
      // The supervisor retries a failed start only if its error is retryable, as peer_gone is. A failed restart must be retried, but
      // not a failed first start. Only a wrong setting keeps its code: with another one the command ends with exit code 1, and an
      // orchestrator starts it again.
      throw new ServerError(isRestart ? "peer_gone" : code === "config_invalid" ? code : "internal", message, {
        param,
      });
    }
  }

  #told(health: SharedStateHealth): void {
    this.#health = health;
    this.#backMs = performance.now();
    if (health.isConnected) this.#options.log.info("the shared state is connected again");
    else this.#options.log.error({ reason: health.reason }, "the shared state is lost; connecting again");
  }

  #setRestoring(isRestoring: boolean): void {
    this.#restoring?.resolve();
    this.#restoring = isRestoring ? deferred() : null;
  }

  /** Handles a request of another replica and sends the response. */
  async #answer({ number, content }: QuestionReport): Promise<void> {
    const { kind, question } = content as AskedQuestion;
    const endpoint = this.#endpoint;
    let [value, error]: [unknown, ErrorRecord | null] = [null, null];
    try {
      for (const handler of this.#handlers.get(kind) ?? []) {
        value = (await handler(question as never)) ?? null;
        if (value !== null) break;
      }
    } catch (thrown) {
      error = toErrorRecord(thrown);
    }
    // The state thread may have ended during the handler. Another one numbers its questions anew.
    if (endpoint === null || endpoint !== this.#endpoint) return;
    this.#system.ref<ReplicaProtocol>("replicas", endpoint).tell("answered", { number, value, error });
  }

  #replicasOf(): Replicas {
    const shared = this.#asker<ReplicaProtocol>("replicas");
    const [ask, statistics] = [shared("ask"), shared("statistics")];
    return {
      id: this.#options.init.shared?.replica ?? "",
      health: () => this.#health,
      wasLost: () => this.#restoring !== null || performance.now() < this.#backMs + reconnectMs,
      restored: () => this.#restoring?.promise ?? Promise.resolve(),
      publish: shared("publish"),
      follow: shared("follow"),
      ask: (to, kind, question, isFirstEnough, needsAll = false) =>
        ask({ to, content: { kind, question } satisfies AskedQuestion, isFirstEnough, needsAll }),
      answer: (kind, handler) => {
        this.#handlers.set(kind, [...(this.#handlers.get(kind) ?? []), handler as AnswerReplica<QuestionKind>]);
      },
      // While the thread restarts, the metrics only report that the state is unreachable.
      metrics: async () => storeMetrics(await statistics(undefined).catch(() => null)),
    };
  }

  async stop(deadlineMs: number): Promise<void> {
    await this.#supervisor?.stop(deadlineMs);
    await this.#system.stop();
  }

  /** Returns a function that creates a method from its name. The method sends its argument to the actor. */
  #asker<P extends Protocol<P>>(actor: string, timeoutMs?: number) {
    const options = timeoutMs === undefined ? {} : { timeoutMs };
    return <K extends keyof P & string>(method: K) =>
      async (message: MessageOf<P, K>) => {
        if (this.#endpoint === null) throw unreachable();
        return await this.#system.ref<P>(actor, this.#endpoint).ask(method, message, options);
      };
  }

  /** Adds the staging folder to the methods. The folder is known only when the thread has started. */
  #withStaging<Methods extends object>(
    name: "stagingFolder" | "skillStagingFolder",
    methods: Methods,
  ): Methods & { readonly stagingFolder: string } {
    const staging = (): string => {
      if (this.#ready === null) throw unreachable();
      return this.#ready[name];
    };
    return {
      ...methods,
      get stagingFolder() {
        return staging();
      },
    };
  }
}

function unreachable(): ServerError {
  return new ServerError(
    "peer_gone",
    "stored responses, files, sessions and skills cannot be reached now; try again soon",
  );
}
