// The server, spoken to by the client library that VS Code's own client is made of. FENCEPOST is the command, or
// `fencepost` is on the path: FENCEPOST="python -m fencepost" npm test

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

const lsp = createRequire(import.meta.url)("vscode-languageserver-protocol/node");
const description = JSON.parse(await readFile(new URL("../package.json", import.meta.url)));
const PATIENCE = 600_000;

const COUNTER = `from fencepost import *


class Counter(Protocol):
    limit: int = constant(3)
    count: int = state(0)

    @action
    def tick(self) -> None:
        require(self.count < self.limit)
        self.count += 1

    @invariant
    def within(self) -> bool:
        return self.count <= self.limit
`;

async function session(files, body) {
  const folder = await mkdtemp(join(tmpdir(), "fencepost-"));
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
  const [command, ...args] = (process.env.FENCEPOST ?? "fencepost").split(" ");
  const server = spawn(command, [...args, "lsp"], { stdio: ["pipe", "pipe", "inherit"] });
  const connection = lsp.createProtocolConnection(
    new lsp.StreamMessageReader(server.stdout),
    new lsp.StreamMessageWriter(server.stdin),
  );
  const waiting = [];
  connection.onNotification(lsp.PublishDiagnosticsNotification.type, (given) => {
    for (const each of [...waiting]) {
      if (each.uri === given.uri && each.condition(given.diagnostics)) {
        waiting.splice(waiting.indexOf(each), 1);
        each.resolve(given.diagnostics);
      }
    }
  });
  connection.listen();
  const found = (uri, condition) => new Promise((resolve) => waiting.push({ uri, condition, resolve }));
  const started = await connection.sendRequest(lsp.InitializeRequest.type, {
    processId: process.pid,
    rootUri: pathToFileURL(folder).href,
    capabilities: {},
  });
  await connection.sendNotification(lsp.InitializedNotification.type, {});
  await body({ connection, found, started, uri: (name) => pathToFileURL(join(folder, name)).href });
  await connection.sendRequest(lsp.ShutdownRequest.type);
  const ended = new Promise((resolve) => server.on("exit", resolve));
  await connection.sendNotification(lsp.ExitNotification.type);
  assert.equal(await ended, 0);
  connection.dispose();
}

const opened = (connection, uri, languageId, text) =>
  connection.sendNotification(lsp.DidOpenTextDocumentNotification.type, {
    textDocument: { uri, languageId, version: 1, text },
  });

test("a planted bug is found at its line", { timeout: PATIENCE }, () =>
  session({ "counter.py": COUNTER }, async ({ connection, found, uri }) => {
    const text = COUNTER.replace("self.count <= self.limit", "self.count != 2");
    const published = found(uri("counter.py"), (all) => all.length > 0);
    await opened(connection, uri("counter.py"), "python", text);
    const [one] = await published;
    assert.equal(one.message, "as declared: within is violated after 2 steps");
    assert.equal(text.split("\n")[one.range.start.line], "    def within(self) -> bool:");
  }),
);

test("a specification is checked", { timeout: PATIENCE }, () =>
  session(
    { "Counter.cfg": "INIT Init\nNEXT Next\nINVARIANT Within\nCHECK_DEADLOCK FALSE\n" },
    async ({ connection, found, uri }) => {
      const text =
        "---- MODULE Counter ----\nEXTENDS Naturals\nVARIABLE count\nInit == count = 0\n" +
        "Next == count < 3 /\\ count' = count + 1\nWithin == count < 3\n====\n";
      const published = found(uri("Counter.tla"), (all) => all.length > 0);
      await opened(connection, uri("Counter.tla"), "tlaplus", text);
      const [one] = await published;
      assert.equal(one.message, "Counter.cfg: Within is violated after 3 steps");
      assert.equal(one.range.start.line, 5);
    },
  ),
);

test("the extension's own commands are not the server's, and what it calls is", { timeout: PATIENCE }, () =>
  session({}, async ({ started }) => {
    const own = description.contributes.commands.map((each) => each.command);
    const server = started.capabilities.executeCommandProvider.commands;
    assert.deepEqual(own.filter((each) => server.includes(each)), []);
    const source = await readFile(new URL("../src/extension.ts", import.meta.url), "utf8");
    for (const [, called] of source.matchAll(/executeCommand\("([^"]+)"/g)) assert.ok(server.includes(called), called);
  }),
);
