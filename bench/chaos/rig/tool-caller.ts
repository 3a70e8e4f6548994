// Tool caller: a GGUF model whose weights make each token determine the next one. It responds to a request with tools with one tool
// call, and to a tool result, or to a request without tools, with "done". So a test with a real engine runs a complete tool call,
// from the chat template to the sandbox.
import { GGUFValueType } from "@huggingface/gguf";
import { spellBytes } from "../../../engines/text/tokenizer/byte-alphabet.ts";
import {
  f32,
  list,
  seededGaussian,
  type Tensor,
  text,
  u32,
  vocabularyFields,
  writeGguf,
} from "../../../test/fixtures/models/tiny-gguf.ts";

const width = 64;
const vocabularySize = 320;
const endToken = 2;

/** Chat template. It ends the prompt with the token that decides the response: `<|call|>` or `<|answer|>`. */
const template =
  "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n'}}{{ message['content'] }}" +
  "{% if message.tool_calls %}{% for call in message.tool_calls %}<tool_call>\n" +
  "{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}\n</tool_call>{% endfor %}{% endif %}" +
  "{{'<|im_end|>\n'}}{% endfor %}{% if tools %}{% for tool in tools %}{{ tool.function.name }} {% endfor %}{% endif %}" +
  "{% if tools and messages[-1]['role'] != 'tool' %}<|call|>{% else %}<|answer|>{% endif %}";

export interface ToolCallerOptions {
  /** Name of the called tool; `args`: arguments of the call. */
  readonly name: string;
  readonly args: object;
}

type Six = [number, number, number, number, number, number];

/** Writes the model to `path`. */
export async function writeToolCaller(path: string, { name, args }: ToolCallerOptions): Promise<void> {
  const texts = ["done", "<tool_call>", name.slice(name.lastIndexOf("_") + 1), JSON.stringify(args)];
  const lastTokens = ["<|answer|>", "<|call|>", ...texts.map(spellBytes)];
  const first = vocabularySize - lastTokens.length;
  const [answer, ask, done, begin, called, given] = lastTokens.map((_, i) => first + i) as Six;
  const fields = vocabularyFields(vocabularySize, { lastTokens, chatTemplate: template });
  const { value: tokens } = fields["tokenizer.ggml.tokens"] as { readonly value: readonly string[] };
  const endingWith = (character: string, next: number): [number, number][] =>
    [...tokens.slice(0, first).entries()]
      .filter(([, token]) => token.endsWith(spellBytes(character)))
      .map(([token]) => [token, next]);
  const types = Array.from({ length: vocabularySize }, (_, token) =>
    token < 3 || token === ask || token === answer ? 3 : 1,
  );
  await writeGguf(path, {
    fields: {
      "general.architecture": text("llama"),
      "general.name": text("tool caller"),
      "general.file_type": u32(0),
      "llama.context_length": u32(2048),
      "llama.embedding_length": u32(width),
      "llama.block_count": u32(1),
      "llama.feed_forward_length": u32(width),
      "llama.attention.head_count": u32(2),
      "llama.attention.head_count_kv": u32(2),
      "llama.attention.layer_norm_rms_epsilon": f32(1e-5),
      "llama.rope.dimension_count": u32(width / 2),
      "llama.vocab_size": u32(vocabularySize),
      ...fields,
      "tokenizer.ggml.token_type": list(types, GGUFValueType.INT32),
    },
    tensors: tensorsOf([
      // The grammar for tool calls forces all characters that have no alternative. The model chooses only the tokens after "_", " ",
      // ":" and ">".
      ...endingWith("_", called),
      ...endingWith(" ", given),
      ...endingWith(":", given),
      ...endingWith(">", endToken),
      [answer, done],
      [done, endToken],
      [ask, begin],
    ]),
    weights: "F32",
  });
}

/** Returns layers without effect, and an output matrix that gives the highest logit to the token that follows the current one. */
function tensorsOf(successors: readonly (readonly [token: number, next: number])[]): Tensor[] {
  const gaussian = seededGaussian(7);
  const zeros = (name: string): Tensor => ({ name, shape: [width, width], values: new Float32Array(width * width) });
  const ones = (name: string): Tensor => ({ name, shape: [width], values: new Float32Array(width).fill(1) });
  const embedding = Float32Array.from({ length: width * vocabularySize }, () => gaussian());
  const output = new Float32Array(width * vocabularySize);
  for (const [token, next] of successors) {
    for (let i = 0; i < width; i++) {
      const at = next * width + i;
      output[at] = (output[at] as number) + (embedding[token * width + i] as number);
    }
  }
  return [
    { name: "token_embd.weight", shape: [width, vocabularySize], values: embedding },
    ones("blk.0.attn_norm.weight"),
    ...["attn_q", "attn_k", "attn_v", "attn_output"].map((name) => zeros(`blk.0.${name}.weight`)),
    ones("blk.0.ffn_norm.weight"),
    ...["ffn_gate", "ffn_up", "ffn_down"].map((name) => zeros(`blk.0.${name}.weight`)),
    ones("output_norm.weight"),
    { name: "output.weight", shape: [width, vocabularySize], values: output },
  ];
}
