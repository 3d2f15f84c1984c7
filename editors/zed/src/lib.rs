//! Starts `cudalint lsp`, found on the PATH of the project.

use zed_extension_api::{self as zed, Command, LanguageServerId, Result, Worktree};

struct Cudalint;

impl zed::Extension for Cudalint {
    fn new() -> Self {
        Cudalint
    }

    fn language_server_command(&mut self, _: &LanguageServerId, worktree: &Worktree) -> Result<Command> {
        let command = worktree
            .which("cudalint")
            .ok_or("cudalint is not on the PATH: pip install 'cudalint[lsp]'")?;
        Ok(Command {
            command,
            args: vec!["lsp".into()],
            env: worktree.shell_env(),
        })
    }
}

zed::register_extension!(Cudalint);
