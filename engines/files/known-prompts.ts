// Known prompts: prompts that the authors of common embedding models state in their model cards, for model files that do not contain them.
// GGUF files that other programs made never contain prompts.
import { basename } from "node:path";
import type { EmbeddingPrompts } from "./embedding-rules.ts";

type Texts = EmbeddingPrompts["texts"];

const retrieval = (query: string, document = ""): Texts => ({ query, document });
const forPassages = retrieval("Represent this sentence for searching relevant passages: ");
const instruction = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:";

interface KnownModel {
  readonly architecture?: string;
  /** Matches the model's name in lower case, with `-` between words. */
  readonly name?: RegExp;
  readonly texts: Texts;
}

const models: readonly KnownModel[] = [
  {
    architecture: "gemma-embedding",
    texts: {
      ...retrieval("task: search result | query: ", "title: none | text: "),
      classification: "task: classification | query: ",
      clustering: "task: clustering | query: ",
      similarity: "task: sentence similarity | query: ",
      question_answering: "task: question answering | query: ",
      fact_checking: "task: fact checking | query: ",
      code_retrieval: "task: code retrieval | query: ",
    },
  },
  {
    name: /nomic-embed-text/,
    texts: {
      ...retrieval("search_query: ", "search_document: "),
      classification: "classification: ",
      clustering: "clustering: ",
    },
  },
  { name: /qwen3-embedding/, texts: retrieval(instruction) },
  { name: /(?:^|-)e5-(?:[a-z0-9]+-)*instruct/, texts: retrieval(`${instruction} `) },
  { name: /(?:^|-)e5-(?:small|base|large)/, texts: retrieval("query: ", "passage: ") },
  { name: /bge-(?:small|base|large)-en/, texts: forPassages },
  { name: /bge-(?:small|base|large)-zh/, texts: retrieval("为这个句子生成表示以用于检索相关文章：") },
  { name: /bge-m3/, texts: retrieval("") },
  { name: /mxbai-embed-large/, texts: forPassages },
  { name: /arctic-embed(?:-[a-z]+-v2|-?2)/, texts: retrieval("query: ") },
  { name: /arctic-embed/, texts: forPassages },
];

/** Returns the prompts of a known model; null = unknown model. `path`: the model's file, whose name is matched, too. */
export function knownPrompts(architecture: string, name: string | null, path: string): EmbeddingPrompts | null {
  const names = `${name ?? ""} ${basename(path)}`.toLowerCase().replaceAll(/[\s_]+/g, "-");
  const found = models.find(
    (one) => (one.name?.test(names) ?? true) && (one.architecture ?? architecture) === architecture,
  );
  return found ? { texts: found.texts, fallback: null } : null;
}
