//! `posse grants` and `posse trust`, as clap sees them.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::{GrantsAction, GrantsArgs, TrustAction, TrustArgs};

#[derive(Debug, Args)]
pub(crate) struct Grants {
    #[command(subcommand)]
    action: GrantsCommand,
    /// The project whose permissions are meant
    #[arg(long, value_name = "DIR", global = true)]
    cwd: Option<PathBuf>,
    /// JSON output
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum GrantsCommand {
    /// Lists what counts here, and for how long
    List {
        /// Grants of all projects
        #[arg(long)]
        all: bool,
    },
    /// Ends some of them, at once and in running sessions as well
    Revoke {
        /// Ids as shown by `list`
        #[arg(required = true)]
        id: Vec<String>,
    },
    /// Delete all grants; a file that failed verification is moved aside
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

#[derive(Debug, Args)]
pub(crate) struct TrustFlags {
    #[command(subcommand)]
    action: Option<TrustCommand>,
    /// The project that is meant
    #[arg(long, value_name = "DIR", global = true)]
    cwd: Option<PathBuf>,
    /// JSON output
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum TrustCommand {
    /// Shows what this project's settings are, which count, and what trust would change
    Show,
    /// Trusts this project's settings as they are, after showing them
    Add {
        /// Without asking, if the file is the one with this SHA-256
        #[arg(long, value_name = "SHA256")]
        accept: Option<String>,
    },
    /// Ends the trust in a project
    Revoke {
        /// The project, if it is not this one
        path: Option<PathBuf>,
    },
    /// Lists the trusted projects
    List,
    /// Revoke all trust; a file that failed verification is moved aside
    Clear,
}

impl TrustFlags {
    pub(crate) fn into_args(self) -> TrustArgs {
        let action = match self.action {
            None | Some(TrustCommand::Show) => TrustAction::Show,
            Some(TrustCommand::Add { accept }) => TrustAction::Add { accept },
            Some(TrustCommand::Revoke { path }) => TrustAction::Revoke { path },
            Some(TrustCommand::List) => TrustAction::List,
            Some(TrustCommand::Clear) => TrustAction::Clear,
        };
        TrustArgs { cwd: self.cwd, json: self.json, action }
    }
}
