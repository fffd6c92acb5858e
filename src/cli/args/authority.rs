//! `posse grants` and `posse trust`, as clap sees them.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::{GrantsAction, GrantsArgs};

#[derive(Debug, Args)]
pub(crate) struct Grants {
    #[command(subcommand)]
    action: GrantsCommand,
    /// The project whose permissions are meant
    #[arg(long, value_name = "DIR", global = true)]
    cwd: Option<PathBuf>,
    /// As JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum GrantsCommand {
    /// Lists what counts here, and for how long
    List {
        /// Those of every project
        #[arg(long)]
        all: bool,
    },
    /// Ends some of them, at once and in running sessions as well
    Revoke {
        /// As `list` shows them
        #[arg(required = true)]
        id: Vec<String>,
    },
    /// Ends all of them; moves a file aside that cannot be believed
    Clear,
}

impl Grants {
    pub(crate) fn into_args(self) -> GrantsArgs {
        let action = match self.action {
            GrantsCommand::List { all } => GrantsAction::List { all },
            GrantsCommand::Revoke { id } => GrantsAction::Revoke { ids: id },
            GrantsCommand::Clear => GrantsAction::Clear,
        };
        GrantsArgs { cwd: self.cwd, json: self.json, action }
    }
}
