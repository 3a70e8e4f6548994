// Makes the Python environment of the client tests, so that .ci/run can do it while it waits for other things.
import { pythonEnvironment } from "./environment.ts";

await pythonEnvironment();
