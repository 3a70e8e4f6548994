// Bucket URL: the form of files_url, `s3://bucket[/prefix]?endpoint=http[s]://host[:port]&region=NAME`. The access keys are not
// part of the URL.
import { ServerError } from "../../errors.ts";

const form = "s3://bucket[/prefix]?endpoint=https://host[:port][&region=NAME]";

export interface BucketAddress {
  /** URL of the bucket, with the bucket in its path. */
  readonly endpoint: string;
  readonly region: string;
  /** Prefix of the names of all objects. It is "" or ends with a slash. */
  readonly prefix: string;
}

/** Parses a bucket URL. Without an endpoint, the bucket is on Amazon S3, and the region is required. Throws config_invalid. */
export function bucketAddress(text: string): BucketAddress {
  if (!URL.canParse(text)) throw invalid();
  const url = new URL(text);
  const { hostname: bucket, searchParams } = url;
  const known = ["endpoint", "region"];
  const isForm = url.protocol === "s3:" && /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/.test(bucket) && url.port === "";
  if (!isForm || url.username !== "" || url.password !== "" || url.hash !== "") throw invalid();
  for (const name of searchParams.keys()) if (!known.includes(name)) throw invalid(`got the parameter "${name}"`);
  const region = searchParams.get("region");
  const given = searchParams.get("endpoint");
  if (given === null && region === null) throw invalid("got neither an endpoint nor a region");
  const endpoint = given ?? `https://s3.${region}.amazonaws.com`;
  const isHttp = URL.canParse(endpoint) && ["http:", "https:"].includes(new URL(endpoint).protocol);
  if (!isHttp || new URL(endpoint).username !== "") throw invalid("the endpoint is not an http or https URL");
  const path = decodeURIComponent(url.pathname).replace(/^\/+|\/+$/g, "");
  if (!/^[A-Za-z0-9._/-]*$/.test(path) || path.split("/").includes(".."))
    throw invalid("got a prefix with characters other than letters, digits, `.`, `_`, `-` and `/`, or with `..`");
  return {
    endpoint: `${endpoint.replace(/\/+$/, "")}/${bucket}`,
    region: region ?? "auto",
    prefix: path === "" ? "" : `${path}/`,
  };
}

function invalid(got?: string): ServerError {
  const text = `files_url expects ${form}${got === undefined ? "" : `; ${got}`}`;
  return new ServerError("config_invalid", text, { param: "files_url" });
}
