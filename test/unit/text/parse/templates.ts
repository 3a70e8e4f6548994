// Template fragments: for each model family, only the text by which choose-format.ts recognizes the family's chat template.

export const templates = {
  hermes: `{{ '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}{{ '}\\n</tool_call>' }} {{ '</think>' }}`,
  coder: "<tool_call>\\n<function=f>\\n<parameter=p>\\nv\\n</parameter>\\n</function>\\n</tool_call> </think>",
  seed: "<seed:tool_call>\\n<function=f>\\n<parameter=p>v</parameter>\\n</function>\\n</seed:tool_call> </seed:think>",
  minimax: `{%- set begin = '<minimax:tool_call>' %}<invoke name="f"><parameter name="p">v</parameter></think>`,
  glm: "<tool_call>{name}\\n<arg_key>{key}</arg_key>\\n<arg_value>{value}</arg_value>\\n</tool_call> </think>",
  llama: "<|start_header_id|>ipython<|end_header_id|> <|python_tag|>",
  "mistral-list": `[TOOL_CALLS][{"name": "f", "id": "123456789"}]`,
  mistral: "[THINK]t[/THINK][TOOL_CALLS]f[CALL_ID]123456789[ARGS]{}",
  "deepseek-fenced": "</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\\n```json\\n",
  deepseek: "</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
  kimi: "</think><|tool_calls_section_begin|><|tool_call_begin|>id<|tool_call_argument_begin|>{}",
  "function-tags": "<function=f>{}</function>",
  recipients: "{{ '>>>all\\n' }}{{ '>>>' + name + '\\n' }}",
  granite: "available_tools <|tool_call|> <think></think> <response></response>",
  phi: "<|tool|>{}<|/tool|>",
  firefunction: "functools[{}]",
  nemotron: "<TOOLCALL>[]</TOOLCALL></think>",
  "command-r": "<|START_THINKING|><|END_THINKING|><|START_ACTION|>[]<|END_ACTION|>",
  gemma: "<|channel>thought\\n<channel|><|tool_call>call:f{}<tool_call|>",
  functiongemma: "<start_function_call>call:f{}<end_function_call>",
  harmony: "<|start|>assistant<|channel|>final<|message|>",
  generic: "{{ message.role }}: {{ message.content }}",
} as const;

export type Family = keyof typeof templates;
export const families = Object.keys(templates) as readonly Family[];
