// Renders the templates of cases.json with Handlebars.js and writes their texts back.
//
//     npm install handlebars@4.7 && node remake.mjs
//
// Each case has `template`, `data` and optionally `escape` (HTML escaping, off by default as for prompts). `text` is
// what Handlebars.js made of it; `error` is true where it refused the template.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { join } from "node:path";

const Handlebars = createRequire(join(process.cwd(), "here.js"))("handlebars");
const file = fileURLToPath(new URL("cases.json", import.meta.url));
const document = JSON.parse(readFileSync(file, "utf8"));

document.version = Handlebars.VERSION;
for (const example of document.cases) {
  delete example.text;
  delete example.error;
  try {
    const template = Handlebars.compile(example.template, { noEscape: !example.escape });
    example.text = template(example.data);
  } catch {
    example.error = true;
  }
}
const lines = document.cases.map((example) => "    " + JSON.stringify(example));
writeFileSync(file, `{\n  "version": ${JSON.stringify(document.version)},\n  "cases": [\n${lines.join(",\n")}\n  ]\n}\n`);
