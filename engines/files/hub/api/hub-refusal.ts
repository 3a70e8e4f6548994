// Error messages for 4xx responses of the hub. Possible causes are a bad token, an unaccepted licence, or a wrong name.
// For a wrong name, the message suggests the nearest existing name. The requests that look up names are tried only
// once, and their failures are ignored. Called by hub-api.ts and part-transfer.ts.
import { z } from "zod";
import { ServerError } from "../../../../runtime/errors.ts";
import { suggestion } from "../../../../runtime/nearest.ts";
import type { HubSource } from "../hub-source.ts";
import { type HubContext, hurried } from "./hub-context.ts";
import { type HubAnswer, readJson, sendRequest } from "./hub-request.ts";

const refsType = z.object({
  branches: z.array(z.object({ name: z.string() })),
  tags: z.array(z.object({ name: z.string() })),
});
const modelsType = z.array(z.object({ id: z.string() }));

/** Returns the error for a 4xx response. `path` is the requested file, if any. */
export async function explainRefusal(
  context: HubContext,
  answer: HubAnswer,
  source: HubSource,
  path: string | null = null,
): Promise<ServerError> {
  await answer.discard();
  const { repo } = source;
  const code = answer.hubHeaders.get("x-error-code");
  if (answer.status === 404) return await explainMissing(context, source, path, code);
  if (code === "GatedRepo" || answer.status === 403) return closed(explainClosed(context, repo, code));
  if (answer.status === 401 && context.token !== null) {
    return closed(`the hub refuses the token for "${repo}": run troupe login, or check HF_TOKEN and token_source`);
  }
  if (answer.status === 401) {
    const near = await nearRepo(context, repo);
    return closed(
      `"${repo}" is not a model on the hub, or is private${near}; for a private model run troupe login, or set HF_TOKEN`,
    );
  }
  return closed(`the hub ${context.endpoint} answered ${answer.status} for "${path ?? repo}"`);
}

function explainClosed({ endpoint, token }: HubContext, repo: string, code: string | null): string {
  const login = token === null ? "run troupe login (or set HF_TOKEN)" : "use a token of that account";
  if (code === "GatedRepo") return `"${repo}" is gated: accept its licence at ${endpoint}/${repo}, then ${login}`;
  return `the hub does not allow access to "${repo}": look at ${endpoint}/${repo} (a licence to accept?), then ${login}`;
}

async function explainMissing(
  context: HubContext,
  source: HubSource,
  path: string | null,
  code: string | null,
): Promise<ServerError> {
  const { repo, revision } = source;
  if (path !== null) return absent(`"${repo}" lists "${path}" but does not have it; try again later`);
  const refs = code === "RepoNotFound" ? null : await namesOfRefs(context, repo);
  if (refs !== null && !refs.includes(revision)) {
    return absent(`"${repo}" has no revision "${revision}"${suggestion(revision, refs)}: ${refs.join(", ")}`);
  }
  return absent(`"${repo}" is not a model on the hub, and not a local path${await nearRepo(context, repo)}`);
}

async function namesOfRefs(context: HubContext, repo: string): Promise<string[] | null> {
  const refs = refsType.safeParse(await askBriefly(context, `/api/models/${repo}/refs`));
  return refs.success ? [...refs.data.branches, ...refs.data.tags].map(({ name }) => name) : null;
}

async function nearRepo(context: HubContext, repo: string): Promise<string> {
  const [owner = "", name = ""] = repo.split("/");
  for (const query of [`author=${owner}`, `search=${name}`]) {
    const models = modelsType.safeParse(await askBriefly(context, `/api/models?${query}&limit=100`));
    const near = models.success
      ? suggestion(
          repo,
          models.data.map(({ id }) => id),
        )
      : "";
    if (near !== "") return near;
  }
  return "";
}

async function askBriefly(context: HubContext, path: string): Promise<unknown> {
  const brief = hurried(context);
  try {
    const answer = await sendRequest(brief, `${brief.endpoint}${path}`);
    if (answer.status === 200) return await readJson(answer);
    await answer.discard();
  } catch {
    // The request only serves to suggest a name, so its failure is ignored.
  }
  return null;
}

function absent(message: string): ServerError {
  return new ServerError("model_file_invalid", message, { param: "model_id" });
}

function closed(message: string): ServerError {
  return new ServerError("model_source_unreachable", message, { param: "model_id" });
}
