// Keys of a model on other servers, in the section [models.remote]. Part of the table in keys.ts.
import type { Key } from "../key.ts";
import { integer, oneOf, seconds, serverUrls, text } from "../kinds.ts";

export const remoteKeys = {
  url: {
    ...serverUrls,
    // Messages must not quote a rejected value, because it may contain a password.
    secret: true,
    default: null,
    defaultSays: "the model runs here",
    repeats: true,
    help: "Server on which the model runs (llama-server, vLLM or troupe); repeatable. model_id, or tok_model_id, then only gives the tokenizer and chat template",
  },
  remoteModel: {
    ...text("a model's name", "NAME"),
    default: null,
    help: "Name of the model on the servers of url; unset = the first model that a server lists",
  },
  apiKeyEnv: {
    ...text("the name of an environment variable", "VARIABLE"),
    default: null,
    help: "Environment variable with the API key for the servers of url",
  },
  upstreamMode: {
    ...oneOf(["tokens", "text"]),
    default: "tokens",
    help: "What the servers of url give. tokens: token ids, with templates, tool parsing and grammars of this server; text: chat completions of any OpenAI-compatible server, which then need no tokenizer here, with its own tool calls and structured output",
  },
  balance: {
    ...oneOf(["prefix", "least"]),
    default: "prefix",
    help: "Choice among several servers of url. prefix: prompts with equal beginnings go to the same server, unless it is loaded; least: the server with the fewest requests",
  },
  remoteRetries: {
    ...integer(0, 16),
    default: 2,
    help: "Number of further attempts, if a server of url fails before the first token",
  },
  connectTimeoutSecs: {
    ...seconds(1),
    default: 5,
    help: "Seconds to wait for a connection to a server of url, and for its answer to a probe",
  },
  firstTokenTimeoutSecs: {
    ...seconds(1),
    default: 300,
    help: "Seconds to wait for the first token from a server of url",
  },
  stallTimeoutSecs: {
    ...seconds(1),
    default: 60,
    help: "Seconds to wait for each further token from a server of url",
  },
  probeIntervalSecs: {
    ...seconds(1),
    default: 5,
    help: "Seconds between two probes of a server of url that has sent no token since the last probe; after a failed probe, the first retries come sooner",
  },
} as const satisfies Record<string, Key>;
