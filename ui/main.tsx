// Entry point of the web UI.
import "./style.css";
import { render } from "preact";
import { App } from "./app.tsx";
import "./base/theme.ts";

render(<App />, document.getElementById("app") as HTMLElement);
