// `troupe run`: chat in the terminal, without a server. Loads the models, answers one message or runs the REPL, and then shuts
// everything down in order.

import type { Inference } from "../../actors/api/inference.ts";
import { InferenceService } from "../../actors/front/inference-service.ts";
import { openLogFile } from "../../http/observe/request-log.ts";
import { ServerError } from "../../runtime/errors.ts";
import { createLogger } from "../../runtime/log/log.ts";
import { frontOptions, placeStopMs } from "../assembly/service-options.ts";
import type { Config } from "../config/config.ts";
import { createProgress } from "../progress.ts";
import { version } from "../version.ts";
import { checkAliases } from "./commands.ts";
import { Conversation, type DefaultsByModel } from "./conversation.ts";
import { type AnswerSettings, answerSettings, chatRequest } from "./generation.ts";
import { historyPath, LineHistory } from "./input/line-history.ts";
import { LoggedInference } from "./logged-inference.ts";
import { answerOnce } from "./one-shot.ts";
import { Output } from "./output.ts";
import { Repl } from "./repl.ts";

const maxInputBytes = 16 * 1024 * 1024;
const signalCodes = { SIGINT: 130, SIGTERM: 143 };

/** Receiver of signals and log lines; it is the REPL while the REPL is running. */
interface Stage {
  repl: Repl | null;
}

export async function run(config: Config): Promise<void> {
  const settings = answerSettings(config);
  checkAliases(config);
  const message = await messageOf(config);
  const stage: Stage = { repl: null };
  const log = createLogger({ level: config.troupe.logLevel, format: "text" }, { write: (line) => show(stage, line) });
  const logFile = config.log === null ? null : await openLogFile(config.log, log);
  const progress = createProgress();
  const options = await frontOptions(config, log, progress);
  let isLoading = true;
  const front = new InferenceService({
    ...options,
    // No progress bar is shown when a model is reloaded during a conversation.
    onLoadProgress: (id, fraction) => isLoading && options.onLoadProgress(id, fraction),
  });
  const inference = logFile === null ? front : new LoggedInference(front, logFile);
  const signal = endOnSignals(stage);
  try {
    await Promise.race([front.start(), aborted(signal)]);
    isLoading = false;
    progress.stop();
    if (signal.aborted) return;
    const defaults = new Map(options.models.map((served) => [served.id, served.defaults]));
    if (message === null) await converse({ inference, config, settings, defaults, stage, signal });
    else await answer({ inference, config, settings, message, signal });
  } finally {
    progress.stop();
    await front.stop(placeStopMs);
    await logFile?.close();
  }
}

function show({ repl }: Stage, line: string): void {
  if (repl === null) process.stderr.write(line);
  else repl.notice(line.trimEnd());
}

/** Returns the message to answer in one-shot mode; null: start the REPL. */
async function messageOf(config: Config): Promise<string | null> {
  if (config.run.input !== null) return config.run.input;
  if (process.stdin.isTTY) return null;
  const message = (await readInput()).trimEnd();
  if (message !== "") return message;
  throw new ServerError("config_invalid", "expected a message: -i TEXT, or text on stdin; got none");
}

async function readInput(): Promise<string> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  for await (const chunk of process.stdin as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    sizeBytes += chunk.length;
    if (sizeBytes > maxInputBytes) {
      throw new ServerError("config_invalid", `stdin expects at most ${maxInputBytes} bytes of text; got more`);
    }
  }
  return Buffer.concat(chunks).toString("utf8");
}

interface Scene {
  readonly inference: Inference;
  readonly config: Config;
  readonly settings: AnswerSettings;
  /** Aborted by a signal that ends the command, for example SIGTERM. */
  readonly signal: AbortSignal;
}

async function answer({ inference, config, settings, message, signal }: Scene & { message: string }): Promise<void> {
  const { defaultModelId: model, adapter } = config;
  const conversation = conversationOf(config, new Map());
  const request = chatRequest(model, conversation.messages(message), settings, adapter, conversation.fields);
  const stdout = new Output(process.stdout, process.env);
  const stderr = new Output(process.stderr, process.env);
  await answerOnce({ inference, request, signal, stdout, stderr });
}

interface Stay extends Scene {
  readonly stage: Stage;
  readonly defaults: DefaultsByModel;
}

async function converse({ inference, config, settings, stage, signal, defaults }: Stay): Promise<void> {
  const answers = new Output(process.stdout, process.env);
  const screen = answers.isTerminal ? process.stdout : process.stderr;
  const notes = answers.isTerminal ? answers : new Output(screen, process.env);
  const conversation = conversationOf(config, defaults);
  const request = (question: string) =>
    chatRequest(
      conversation.model,
      conversation.messages(question),
      settings,
      conversation.adapter,
      conversation.fields,
    );
  const history = new LineHistory(historyPath(process.env));
  const { model, adapter } = conversation;
  const subject = adapter === null ? model : `${model} with ${adapter}`;
  notes.line(notes.dim(`troupe ${version}, ${subject}\n/help lists the commands; ctrl-d exits\n`));
  const input = process.stdin;
  const repl = new Repl({ inference, conversation, request, history, input, screen, notes, answers });
  signal.addEventListener("abort", () => repl.close(), { once: true });
  stage.repl = repl;
  await repl.run();
  stage.repl = null;
  notes.line("");
}

function conversationOf({ models, defaultModelId, adapter, run }: Config, defaults: DefaultsByModel): Conversation {
  const ids = models.map(({ id }) => id);
  const adapters = new Map(models.map((model) => [model.id, model.adapter.lora.map(({ alias }) => alias)]));
  const conversation = new Conversation(ids, defaultModelId, adapters, defaults);
  conversation.useAdapter(adapter);
  conversation.system = run.system;
  if (run.maxTokens !== null) conversation.fields = { max_tokens: run.maxTokens };
  return conversation;
}

/** Handles signals. The first one shuts down in order, a second one exits at once. In the REPL, SIGINT means ctrl-c. */
function endOnSignals(stage: Stage): AbortSignal {
  const end = new AbortController();
  for (const [signal, code] of Object.entries(signalCodes)) {
    process.on(signal, () => {
      if (end.signal.aborted) process.exit(code);
      if (signal === "SIGINT" && stage.repl !== null) {
        stage.repl.interrupt();
        return;
      }
      process.exitCode = code;
      end.abort();
    });
  }
  return end.signal;
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
}
