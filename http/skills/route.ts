// Skills routes: upload, list, metadata, content and deletion of skills and their versions.
import { createReadStream } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { latestVersion, type Skill, type Skills, type SkillVersion, versionOf } from "../../actors/api/agent/skills.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { Context, RouteHandler } from "../context.ts";
import type { Exchange } from "../exchange.ts";
import { clientOf } from "../server/client.ts";
import { sendPieces } from "../shared/answer/pieces.ts";
import { readQuery } from "../shared/read-query.ts";
import { type SkillsQuery, skillsQuery } from "./query.ts";
import { storeUpload } from "./upload.ts";
import { shapesFor, versionId } from "./wire.ts";

const PIECE_BYTES = 256 * 1024;
/** Path segment that names the latest version. */
const LATEST = "latest";

export const createSkill: RouteHandler = async (exchange, context) => {
  const skill = await storeUpload(exchange.request, skillsOf(context), null);
  exchange.json(200, shapesFor(exchange.request).skill(skill));
};

export const listSkills: RouteHandler = async (exchange, context) => {
  const query = readQuery(exchange.request.query, skillsQuery);
  const all = await skillsOf(context).list();
  const chosen = query.source === undefined || query.source === "custom" ? all : [];
  const { skill, list } = shapesFor(exchange.request);
  const page = pageOf(chosen.map(skill), query);
  exchange.json(200, list(page.items, page.hasMore));
};

export const retrieveSkill: RouteHandler = async (exchange, context) => {
  exchange.json(200, shapesFor(exchange.request).skill(await foundSkill(exchange, context)));
};

export const deleteSkill: RouteHandler = async (exchange, context) => {
  const { skill_id: id = "" } = exchange.parameters;
  if (!(await skillsOf(context).delete(id))) throw skillNotFound(id);
  exchange.json(200, shapesFor(exchange.request).deletedSkill(id));
};

export const createSkillVersion: RouteHandler = async (exchange, context) => {
  const { skill_id: id = "" } = exchange.parameters;
  const skill = await storeUpload(exchange.request, skillsOf(context), id);
  exchange.json(200, shapesFor(exchange.request).version(skill, latestVersion(skill)));
};

export const listSkillVersions: RouteHandler = async (exchange, context) => {
  const query = readQuery(exchange.request.query, skillsQuery);
  const skill = await foundSkill(exchange, context);
  const shapes = shapesFor(exchange.request);
  const versions = [...skill.versions].reverse().map((version) => shapes.version(skill, version));
  const page = pageOf(versions, query);
  exchange.json(200, shapes.list(page.items, page.hasMore));
};

export const retrieveSkillVersion: RouteHandler = async (exchange, context) => {
  const { skill, version } = await foundVersion(exchange, context);
  exchange.json(200, shapesFor(exchange.request).version(skill, version));
};

export const deleteSkillVersion: RouteHandler = async (exchange, context) => {
  const { skill, version } = await foundVersion(exchange, context);
  const number = version.version;
  if (!(await skillsOf(context).deleteVersion({ id: skill.id, version: number })))
    throw skillNotFound(skill.id, number);
  exchange.json(200, shapesFor(exchange.request).deletedVersion(skill.id, number));
};

export const skillContent: RouteHandler = async (exchange, context) => {
  await sendArchive(exchange, context, await foundSkill(exchange, context), null);
};

export const skillVersionContent: RouteHandler = async (exchange, context) => {
  const { skill, version } = await foundVersion(exchange, context);
  await sendArchive(exchange, context, skill, version.version);
};

/** Sends a version as a zip archive. */
async function sendArchive(exchange: Exchange, context: Context, { id }: Skill, version: number | null): Promise<void> {
  const skills = skillsOf(context);
  const packed = await skills.pack({ id, version, client: clientOf(exchange.request) });
  if (packed === null) throw skillNotFound(id, version);
  const path = join(skills.stagingFolder, packed.staged);
  const pieces = createReadStream(path, { highWaterMark: PIECE_BYTES });
  const headers = {
    "content-type": "application/zip",
    "content-disposition": `attachment; filename="${packed.name}.zip"`,
    "x-content-type-options": "nosniff",
    "cache-control": "private, no-store",
  };
  try {
    await sendPieces(exchange, headers, pieces, context.config);
  } finally {
    pieces.destroy();
    await rm(path, { force: true });
  }
}

interface Page<Item> {
  readonly items: readonly Item[];
  readonly hasMore: boolean;
}

/** Returns a page of the items. `items`: sorted with the newest first. Throws invalid_value for an unknown cursor. */
function pageOf<Item extends { readonly id: string }>(items: readonly Item[], query: SkillsQuery): Page<Item> {
  const { limit = "1000", order, after, page } = query;
  const ordered = order === "asc" ? [...items].reverse() : items;
  const cursor = page ?? after;
  const start = cursor === undefined ? 0 : ordered.findIndex(({ id }) => id === cursor) + 1;
  if (cursor !== undefined && start === 0) {
    const param = page === undefined ? "after" : "page";
    throw new ServerError("invalid_value", `expected the id of a listed entry, got "${cursor}"`, { param });
  }
  const end = start + Number(limit);
  return { items: ordered.slice(start, end), hasMore: ordered.length > end };
}

async function foundSkill({ parameters }: Exchange, context: Context): Promise<Skill> {
  const { skill_id: id = "" } = parameters;
  const skill = await skillsOf(context).find(id);
  if (skill === null) throw skillNotFound(id);
  return skill;
}

async function foundVersion(
  exchange: Exchange,
  context: Context,
): Promise<{ readonly skill: Skill; readonly version: SkillVersion }> {
  const { version: text = "" } = exchange.parameters;
  const skill = await foundSkill(exchange, context);
  const prefix = versionId(skill.id, 0).slice(0, -1);
  const number = text.startsWith(prefix) ? text.slice(prefix.length) : text;
  const isNumber = /^[1-9]\d{0,8}$/.test(number);
  const version = number === LATEST ? latestVersion(skill) : versionOf(skill, isNumber ? Number(number) : 0);
  if (version === undefined) throw skillNotFound(skill.id, number);
  return { skill, version };
}

function skillsOf({ skills }: Pick<Context, "skills">): Skills {
  if (skills !== null) return skills;
  throw new ServerError("unsupported", "this server keeps no skills; send their text in a system message");
}

function skillNotFound(id: string, version: number | string | null = null): ServerError {
  const shown = JSON.stringify(id.slice(0, 200));
  const which =
    version === null ? `the id ${shown}` : `the id ${shown} and the version ${String(version).slice(0, 20)}`;
  return new ServerError("skill_not_found", `no skill has ${which}; GET /v1/skills lists the skills`);
}
