// Starts `fencepost lsp`, and gives it what an author writes. All else is the server's.

import * as path from "node:path";
import * as vscode from "vscode";
import { LanguageClient, LanguageClientOptions, ServerOptions } from "vscode-languageclient/node";

let client: LanguageClient | undefined;

/** The command of the server. A path in it is relative to the first folder of the workspace. */
function serverOptions(folder: string | undefined): ServerOptions {
  const given = vscode.workspace.getConfiguration("fencepost").get<string[]>("command") ?? [];
  const [command = "fencepost", ...args] = given;
  const isPath = command.includes("/") && !path.isAbsolute(command);
  return {
    command: isPath && folder !== undefined ? path.join(folder, command) : command,
    args,
    options: { cwd: folder },
  };
}

function clientOptions(folder: string | undefined): LanguageClientOptions {
  const settings = vscode.workspace.getConfiguration("fencepost");
  const libraries = settings.get<string[]>("libraries") ?? [];
  return {
    documentSelector: [
      { scheme: "file", language: "python" },
      { scheme: "file", pattern: "**/*.tla" },
    ],
    synchronize: { fileEvents: vscode.workspace.createFileSystemWatcher("**/*.{py,tla,cfg}") },
    initializationOptions: {
      checkOn: settings.get("checkOn"),
      seconds: settings.get("seconds"),
      memory: settings.get("memory"),
      libraries: libraries.map((each) => (folder === undefined ? each : path.resolve(folder, each))),
    },
  };
}

async function start(): Promise<void> {
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath;
  client = new LanguageClient("fencepost", "Fencepost", serverOptions(folder), clientOptions(folder));
  try {
    await client.start();
  } catch (error) {
    void vscode.window.showErrorMessage(
      `Fencepost's server does not start (${error}). Install Fencepost with its extra lsp, and set fencepost.command.`,
    );
  }
}

async function stop(): Promise<void> {
  const running = client;
  client = undefined;
  await running?.dispose();
}

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  context.subscriptions.push(
    // The server's own commands, those of its code lenses, are registered by the client.
    vscode.commands.registerCommand("fencepost.checkFile", () => {
      const uri = vscode.window.activeTextEditor?.document.uri;
      return uri && vscode.commands.executeCommand("fencepost.check", uri.toString());
    }),
    vscode.commands.registerCommand("fencepost.restart", async () => {
      await stop();
      await start();
    }),
    vscode.workspace.onDidChangeConfiguration(async (event) => {
      if (event.affectsConfiguration("fencepost")) {
        await stop();
        await start();
      }
    }),
  );
  await start();
}

export function deactivate(): Promise<void> {
  return stop();
}
