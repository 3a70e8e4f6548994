// Script that creates the Python environments of the client tests and of the S3 server. .ci/run starts the script early, while other steps run.
import { s3Requirements } from "../replicas/s3.ts";
import { pythonEnvironment } from "./environment.ts";

await pythonEnvironment();
await pythonEnvironment(s3Requirements);
