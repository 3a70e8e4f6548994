// `troupe run` and `troupe agent`: chat in the terminal without a server, with or without tools. Loads the models, answers one
// message or runs the REPL, and then shuts everything down in order.
import type { Inference } from "../../actors/api/inference.ts";
import type { RequestMedia } from "../../engines/generation.ts";
import { openLogFile } from "../../http/observe/request-log.ts";
import { ServerError } from "../../runtime/errors.ts";
import { createLogger, type Logger } from "../../runtime/log/log.ts";
import { type AgentTerminal, checkAgent, type OpenAgent, openAgent, usesTools } from "../agent/open-agent.ts";
import type { Config } from "../config/config.ts";
import { version } from "../version.ts";
import { checkAliases } from "./commands.ts";
import { Conversation, type DefaultsByModel } from "./conversation.ts";
import { type AnswerSettings, answerSettings, chatRequest } from "./generation.ts";
import { historyPath, LineHistory } from "./input/line-history.ts";
import { readMediaFiles, withMedia } from "./input/media-files.ts";
import { type OpenQuestions, openQuestions, type Questions } from "./input/questions.ts";
import { LoggedInference } from "./logged-inference.ts";
import { type OpenModels, openModels } from "./models.ts";
import { answerOnce, printEvents } from "./one-shot.ts";
import { Output } from "./output.ts";
import { Repl } from "./repl.ts";
import { endOnSignals, interruptCode, type Stage, unlessEnded } from "./signals.ts";

const maxInputBytes = 16 * 1024 * 1024;

/** Runs the command. `open` opens the models. */
export async function run(config: Config, open: OpenModels = openModels): Promise<void> {
  const settings = answerSettings(config);
  checkAliases(config);
  if (usesTools(config)) checkAgent(config);
  else if (config.run.json) throw new ServerError("config_invalid", '"--json" requires tools: add --agent');
  const message = await messageOf(config);
  const media = await readMediaFiles(config.run);
  const stage: Stage = { repl: null };
  const log = createLogger({ level: config.troupe.logLevel, format: "text" }, { write: (line) => show(stage, line) });
  if (config.mcpConfig !== null && !usesTools(config)) log.warn("mcp_config has no effect without --agent");
  const logFile = config.log === null ? null : await openLogFile(config.log, log);
  const end = endOnSignals(stage);
  const models = await open(config, log, end.signal).catch(unlessEnded(end.signal));
  if (models === null) return void (await logFile?.close());
  const { defaults } = models;
  const inference = logFile === null ? models.inference : new LoggedInference(models.inference, logFile);
  try {
    // A signal may have arrived while the engine was chosen.
    if (!end.signal.aborted) await Promise.race([models.start(), aborted(end.signal)]);
    if (end.signal.aborted) return;
    const scene: Scene = { inference, config, settings, media, log, end, defaults };
    if (message === null) await converse(scene, stage);
    else await answer(scene, message);
  } finally {
    await models.stop();
    await logFile?.close();
  }
}

function show({ repl }: Stage, line: string): void {
  if (repl === null) process.stderr.write(line);
  else repl.notice(line.trimEnd());
}

/** Returns the message to answer in one-shot mode; null if the REPL is to be started. */
async function messageOf(config: Config): Promise<string | null> {
  if (config.run.input !== null) return config.run.input;
  if (process.stdin.isTTY && config.run.json) throw noMessage("--json expects a message", "a terminal");
  if (process.stdin.isTTY) return null;
  const message = (await readInput()).trimEnd();
  if (message !== "") return message;
  throw noMessage("expected a message", "none");
}

function noMessage(expected: string, came: string): ServerError {
  return new ServerError("config_invalid", `${expected}: -i TEXT, or text on stdin; got ${came}`);
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
  /** Images, videos and audio for the message of the one-shot mode. */
  readonly media: readonly RequestMedia[];
  readonly log: Logger;
  readonly end: ReturnType<typeof endOnSignals>;
  readonly defaults: DefaultsByModel;
}

/** Opens the agent if the settings give the model tools. */
async function agentOf({ config, inference, log }: Scene, terminal: AgentTerminal): Promise<OpenAgent | null> {
  return usesTools(config) ? await openAgent(config, inference, terminal, log) : null;
}

async function answer(scene: Scene, message: string): Promise<void> {
  const { config, settings, media, end } = scene;
  const stdout = new Output(process.stdout, process.env);
  const stderr = new Output(process.stderr, process.env);
  const asking = asks(config) ? askingOnTerminal(scene) : null;
  const questions = () => (asking as OpenQuestions).questions;
  const opened = await agentOf(scene, { answers: stdout, notes: stderr, canAsk: asking !== null, questions });
  try {
    const conversation = conversationOf(config, new Map(), opened);
    const { model, adapter, fields } = conversation;
    const text = chatRequest(model, conversation.messages(message), settings, adapter, fields);
    const request = withMedia(text, media);
    const asked = { request, signal: end.signal, stdout, stderr };
    if (opened === null) return await answerOnce({ ...asked, inference: scene.inference });
    if (config.run.json) await printEvents({ ...asked, agent: opened.agent });
    else await answerOnce({ ...asked, inference: opened.agent });
    if (!config.run.json) showContinuation(stderr, opened);
    if (opened.agent.isLimited) process.exitCode ??= 1;
  } finally {
    asking?.close();
    await opened?.stop();
  }
}

/** Returns whether the user is asked before tool calls. */
function asks(config: Config): boolean {
  return usesTools(config) && !config.run.yes && config.agentPermission === "ask";
}

function askingOnTerminal({ end }: Scene): OpenQuestions {
  const screen = process.stderr.isTTY ? process.stderr : process.stdout;
  const asking = openQuestions(process.stdin, screen, () => end.stop(interruptCode));
  end.signal.addEventListener("abort", () => asking.questions.answer(null), { once: true });
  return asking;
}

async function converse(scene: Scene, stage: Stage): Promise<void> {
  const { inference, config, settings, end } = scene;
  const answers = new Output(process.stdout, process.env);
  const screen = answers.isTerminal ? process.stdout : process.stderr;
  const notes = answers.isTerminal ? answers : new Output(screen, process.env);
  const questions = (): Questions => (stage.repl as Repl).questions;
  const opened = await agentOf(scene, { answers, notes, canAsk: true, questions });
  try {
    const conversation = conversationOf(config, scene.defaults, opened);
    const request = (question: string) => {
      const { model, adapter, fields } = conversation;
      return chatRequest(model, conversation.messages(question), settings, adapter, fields);
    };
    notes.line(notes.dim(greeting(conversation, opened)));
    const agent = opened?.agent ?? null;
    const repl = new Repl({
      inference: agent === null ? inference : agent.over(inference),
      conversation,
      request,
      cutAnswer: (text) => agent?.cutAnswer() ?? text,
      history: new LineHistory(historyPath(process.env)),
      input: process.stdin,
      screen,
      notes,
      answers,
    });
    end.signal.addEventListener("abort", () => repl.close(), { once: true });
    stage.repl = repl;
    await repl.run();
    stage.repl = null;
    notes.line("");
    showContinuation(notes, opened);
  } finally {
    await opened?.stop();
  }
}

function showContinuation(notes: Output, opened: OpenAgent | null): void {
  const continuation = opened?.continuation() ?? null;
  if (continuation !== null) notes.line(notes.dim(continuation));
}

function greeting({ model, adapter, turns }: Conversation, opened: OpenAgent | null): string {
  const subject = adapter === null ? model : `${model} with ${adapter}`;
  const place = opened === null ? "" : `; tools work in ${opened.folder}`;
  const resumed = turns.length === 0 ? "" : `\nthe conversation continues after ${turns.length} messages`;
  return `troupe ${version}, ${subject}${place}${resumed}\n/help lists the commands; ctrl-d exits\n`;
}

function conversationOf(
  { models, defaultModelId, adapter, run }: Config,
  defaults: DefaultsByModel,
  agent: OpenAgent | null,
): Conversation {
  const ids = models.map(({ id }) => id);
  const adapters = new Map(models.map((model) => [model.id, model.adapter.lora.map(({ alias }) => alias)]));
  const conversation = new Conversation(ids, defaultModelId, adapters, defaults);
  conversation.useAdapter(adapter);
  conversation.system = agent === null ? run.system : agent.conversation.system;
  for (const turn of agent?.conversation.turns ?? []) conversation.add(turn);
  if (run.maxTokens !== null) conversation.fields = { max_tokens: run.maxTokens };
  return conversation;
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
}
