// S3 server for tests: moto in a Python process, behind a proxy that can inject faults.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { pythonEnvironment } from "../python/environment.ts";

const folder = fileURLToPath(new URL("../../../../test/server/replicas/", import.meta.url));

export const s3Requirements = `${folder}s3-requirements.txt`;
export const s3Keys = { AWS_ACCESS_KEY_ID: "a-key", AWS_SECRET_ACCESS_KEY: "a-secret-key" };
export const bucketKeys = { accessKeyId: s3Keys.AWS_ACCESS_KEY_ID, secretAccessKey: s3Keys.AWS_SECRET_ACCESS_KEY };

/** Fault of a request: a number is the status of the response; "cut" ends the response in the middle of its body. */
export type Fault = number | "cut";

export interface S3Server {
  /** URL of the bucket, as in the setting files_url. */
  readonly url: string;
  /** Faults of the next requests. */
  readonly faults: Fault[];
  /** Number of requests so far. */
  requests(): number;
  stop(): Promise<void>;
}

export async function startS3(): Promise<S3Server> {
  const python = await pythonEnvironment(s3Requirements);
  const child = spawn(python, [`${folder}s3-server.py`], { stdio: ["ignore", "pipe", "inherit"] });
  process.on("exit", () => child.kill("SIGKILL"));
  const port = Number(
    await Promise.race([
      once(child.stdout, "data").then(([line]) => String(line)),
      once(child, "exit").then(([code]) => Promise.reject(new Error(`the S3 server ended with code ${code}`))),
    ]),
  );
  const faults: Fault[] = [];
  let count = 0;
  const proxy = createServer((asked, reply) => {
    count++;
    const fault = faults.shift();
    if (typeof fault === "number") {
      asked.resume().on("end", () => reply.writeHead(fault, { "content-type": "application/xml" }).end("<Error/>"));
      return;
    }
    const { method, url, headers } = asked;
    const passed = request({ port, host: "127.0.0.1", method, path: url, headers }, (answer) => {
      reply.writeHead(answer.statusCode ?? 500, answer.headers);
      if (fault === "cut")
        answer.once("data", (piece: Buffer) => reply.write(piece.subarray(0, 100), () => reply.destroy()));
      else answer.pipe(reply);
    });
    passed.on("error", () => reply.destroy());
    asked.pipe(passed);
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  const endpoint = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  await fetch(`${endpoint}/files`, { method: "PUT" });
  return {
    url: `s3://files/troupe?endpoint=${endpoint}&region=us-east-1`,
    faults,
    requests: () => count,
    stop: async () => {
      proxy.close();
      proxy.closeAllConnections();
      child.kill("SIGKILL");
      if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
    },
  };
}
