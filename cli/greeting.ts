// Greeting: the text that `troupe serve` prints when it is ready, with the addresses of the endpoints and a command to try.
// Endpoints that no served model supports are left out.
import type { ModelEntry } from "../actors/api/inference.ts";
import { smallestModel } from "../engines/files/hub/catalog.ts";

export interface Greeted {
  /** Address that the server listens on. */
  readonly host: string;
  readonly port: number;
  /** Port of the MCP server; null if there is no MCP server. */
  readonly mcpPort: number | null;
  readonly hasUi: boolean;
  readonly models: readonly Pick<ModelEntry, "id" | "capabilities" | "speech" | "isDiffusion">[];
  readonly defaultModelId: string;
  /** The `model_id` of each model in the settings. */
  readonly modelIds: readonly string[];
}

export function greeting({ host, port, mcpPort, hasUi, models, defaultModelId, modelIds }: Greeted): string {
  const shown = host === "0.0.0.0" || host === "::" ? "localhost" : host.includes(":") ? `[${host}]` : host;
  const url = `http://${shown}:${port}`;
  const endpoints: [name: string, address: string][] = [
    ...(models.some(generates) ? generating(url) : []),
    ...(models.some(embeds) ? [["embeddings", `${url}/v1/embeddings`] as [string, string]] : []),
    ...(models.some(speaks) ? [["speech", `${url}/v1/audio/speech`] as [string, string]] : []),
    ...(models.some(transcribes) ? [["transcripts", `${url}/v1/audio/transcriptions`] as [string, string]] : []),
    ...(models.some(makesImages) ? [["images", `${url}/v1/images/generations`] as [string, string]] : []),
    ["models", `${url}/v1/models`],
    ...(hasUi ? [["web UI", `${url}/ui/`] as [string, string]] : []),
    ["API docs", `${url}/docs`],
    ["health", `${url}/health`],
    ...(mcpPort === null ? [] : [["mcp", `http://${shown}:${mcpPort}/mcp`] as [string, string]]),
  ];
  const defaultModel = models.find(({ id }) => id === defaultModelId);
  const lines = endpoints.map(([name, address]) => `  ${name.padEnd(12)} ${address}\n`).join("");
  return `\ntroupe serves ${models.map(({ id }) => id).join(", ")}\n\n${lines}\n${toyNotice(modelIds)}${attempt(url, defaultModel)}`;
}

type Greeting = Greeted["models"][number];

/** Returns whether a model generates text. A model that is not loaded yet is assumed to generate text, as most models do. */
function generates({ capabilities, speech, isDiffusion }: Greeting): boolean {
  return capabilities?.generates ?? !(speech || isDiffusion);
}

function speaks({ speech }: Greeting): boolean {
  return speech?.task === "speak";
}

function transcribes({ speech }: Greeting): boolean {
  return speech?.task === "transcribe";
}

function makesImages({ isDiffusion }: Greeting): boolean {
  return isDiffusion === true;
}

function embeds({ capabilities }: Greeting): boolean {
  return capabilities?.embeds === true && !capabilities.generates;
}

function generating(url: string): [string, string][] {
  return ["chat/completions", "responses", "messages"].map((path) => [path.split("/")[0] ?? "", `${url}/v1/${path}`]);
}

/** Returns a command to try for the default model; "" if there is none. */
function attempt(url: string, model: Greeting | undefined): string {
  if (model === undefined) return "";
  const question = `{"messages":[{"role":"user","content":"Say hello in five words."}],"stream":true}`;
  if (generates(model)) return tried(`-N ${url}/v1/chat/completions`, question);
  if (embeds(model)) return tried(`${url}/v1/embeddings`, `{"model":"default","input":"Hello."}`);
  if (makesImages(model)) return tried(`${url}/v1/images/generations`, `{"prompt":"a red cat on a mat"}`);
  return speaks(model)
    ? tried(`-o hello.wav ${url}/v1/audio/speech`, `{"input":"Hello.","response_format":"wav"}`)
    : "";
}

function tried(address: string, body: string): string {
  return `Try it:\n\n  curl ${address} -H 'content-type: application/json' \\\n    -d '${body}'\n\n`;
}

/** Returns a hint on how to serve a better model if only the smallest default model is served; else "". */
function toyNotice(modelIds: readonly string[]): string {
  if (!modelIds.every((id) => id === smallestModel)) return "";
  return `${smallestModel} is a toy that shows that the server works. For real answers:\n\n  troupe models\n\n`;
}
