//! The status bar: model, effort, agent, sandbox, network, context, cost, branch and folder.

use crate::text::{TextRow, clipped, clipped_front, span, width};
use crate::theme::{Role, Theme};
use posse_frontend::end_line::count_text;

use posse_actors::cost::dollars;
use posse_actors::event::{PermissionMode, SandboxTier};
use posse_actors::ports::NetworkAccess;
use ratatui::text::{Line, Span};

/// Content of the status bar.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Status {
    /// Permission mode; `None` until a session has been opened.
    pub(super) permission_mode: Option<PermissionMode>,
    /// Name of the provider profile; empty until a session has been opened.
    pub(super) provider: String,
    /// Name of the model; empty until a session has been opened.
    pub(super) model: String,
    /// Mode of the vim keys; `None` without them.
    pub(super) vim_mode: Option<&'static str>,
    /// Reasoning effort; `None` if the provider decides it.
    pub(super) effort: Option<&'static str>,
    /// Name of the agent; empty until a session has been opened.
    pub(super) agent: String,
    /// Working directory for display, with `~` for the home directory.
    pub(super) cwd: String,
    /// Absolute path of the working directory; empty until it is known.
    pub(super) folder: String,
    /// Sandbox tier; `Unknown` with an empty text until a session has been opened.
    pub(super) tier: SandboxTier,
    /// Network access of commands; `None` until a session has been opened.
    pub(super) network: Option<NetworkAccess>,
    /// Git branch or commit of the folder, without control characters; `None` if there is none.
    pub(super) branch: Option<String>,
    /// Number of tokens of the context, by the last attempt, compaction or measurement; `None` if
    /// it is unknown.
    pub(super) context: Option<u64>,
    /// Maximum tokens of the context; `None` if it is unknown.
    pub(super) limit: Option<u64>,
    /// Known cost of the session in nano-USD; `None` if no cost is known.
    pub(super) cost: Option<u64>,
    /// Number of running background jobs.
    pub(super) jobs: usize,
    /// Label of a special mode, `--yes` or dry run; `None` in normal mode.
    pub(super) mode_label: Option<&'static str>,
}

/// Rank of the context usage: parts with higher ranks are left out first.
const CONTEXT: u8 = 2;

/// Maximum columns of the branch.
const BRANCH_COLUMNS_MAX: usize = 24;

/// Network access of commands in one word, for the status line command.
pub(super) fn network_word(access: NetworkAccess) -> &'static str {
    match access {
        NetworkAccess::Host => "open",
        NetworkAccess::Domains => "ask",
        NetworkAccess::Denied => "closed",
    }
}

/// Network access of commands, as rank, role and text.
fn network_part(access: NetworkAccess) -> (u8, Role, String) {
    match access {
        NetworkAccess::Host => (3, Role::Warn, "network open".to_owned()),
        NetworkAccess::Domains => (DETAIL, Role::Dim, "network asks".to_owned()),
        NetworkAccess::Denied => (DETAIL, Role::Dim, "no network".to_owned()),
    }
}

/// Rank of the folder: it is left out first, because it was shown at the start.
const FOLDER: u8 = 6;

/// Rank of details that are left out next.
const DETAIL: u8 = 5;

/// Context usage in percent at or above which it is highlighted.
const NEARLY_FULL: u64 = 80;

/// Context usage as text.
struct ContextUsage {
    role: Role,
    whole: String,
    share: String,
}

impl Status {
    /// A path for display, with `~` for the home directory, which is known from the working directory
    /// if that is below it.
    pub(super) fn short(&self, path: &str) -> String {
        let rest = self.cwd.strip_prefix('~');
        let home = rest.and_then(|rest| self.folder.strip_suffix(rest));
        let below = home.filter(|home| !home.is_empty()).and_then(|home| path.strip_prefix(home));
        match below {
            Some(below) if below.is_empty() || below.starts_with('/') => format!("~{below}"),
            _ => path.to_owned(),
        }
    }

    /// Sets the provider and the model.
    pub(super) fn set_model(&mut self, provider: &str, model: &str) {
        provider.clone_into(&mut self.provider);
        model.clone_into(&mut self.model);
    }

    fn context_usage(&self) -> Option<ContextUsage> {
        let used = self.context?;
        let Some(limit) = self.limit.filter(|limit| *limit > 0) else {
            let whole = format!("{} tokens", count_text(used));
            return Some(ContextUsage { role: Role::Dim, whole, share: String::new() });
        };
        let percent = used.saturating_mul(100) / limit;
        let role = if percent >= NEARLY_FULL { Role::Warn } else { Role::Dim };
        let share = format!("{percent}%");
        Some(ContextUsage {
            role,
            whole: format!("{}/{} {share}", count_text(used), count_text(limit)),
            share,
        })
    }

    /// Renders the status bar in one row. Parts that do not fit are left out, the least important
    /// first; after the folder, the context usage is shortened to its percentage.
    pub(super) fn row(&self, columns: usize, theme: Theme) -> TextRow {
        let who = if self.model.is_empty() {
            "no model".to_owned()
        } else {
            format!("{} via {}", self.model, self.provider)
        };
        let context = self.context_usage();
        let tier = match &self.tier {
            SandboxTier::Full => Some((4, Role::Dim, "sandbox")),
            SandboxTier::Reduced => Some((0, Role::Warn, "sandbox reduced")),
            SandboxTier::Unknown(text) if text.is_empty() => None,
            _ => Some((0, Role::Bad, "no sandbox")),
        };
        // Each part has a rank.
        let mode = self.permission_mode.map(|mode| {
            let role = match mode {
                PermissionMode::Plan | PermissionMode::Edits => Role::Accent,
                PermissionMode::Ask | PermissionMode::Locked => Role::Dim,
                PermissionMode::Auto => Role::Warn,
            };
            (1, role, mode.to_string())
        });
        let vim = self.vim_mode.map(|mode| (1, Role::Accent, mode.to_owned()));
        let mut parts: Vec<(u8, Role, String)> = mode.into_iter().chain(vim).collect();
        parts.push((1, Role::Text, who));
        parts.extend(self.effort.map(|effort| (DETAIL, Role::Dim, format!("effort {effort}"))));
        parts.extend((!self.agent.is_empty()).then(|| (3, Role::Dim, self.agent.clone())));
        parts.extend(self.mode_label.map(|mode_label| (0, Role::Warn, mode_label.to_owned())));
        parts.extend(tier.map(|(rank, role, tier)| (rank, role, tier.to_owned())));
        // Without a sandbox the network is open as well.
        let network = self.network.filter(|_| self.tier != SandboxTier::None);
        parts.extend(network.map(network_part));
        let jobs = if self.jobs == 1 { "job" } else { "jobs" };
        parts.extend((self.jobs > 0).then(|| (1, Role::Accent, format!("{} {jobs}", self.jobs))));
        parts.extend(context.as_ref().map(|full| (CONTEXT, full.role, full.whole.clone())));
        parts.extend(self.cost.map(|cost| (3, Role::Dim, dollars(cost))));
        let branch = self.branch.as_deref().map(|name| clipped(name, BRANCH_COLUMNS_MAX));
        parts.extend(branch.map(|name| (3, Role::Dim, format!("⎇ {name}"))));
        parts.push((FOLDER, Role::Dim, clipped_front(&self.cwd, 30)));
        let taken = |parts: &[(u8, Role, String)]| -> usize {
            parts.iter().map(|(.., text)| width(text) + 3).sum::<usize>().saturating_sub(3)
        };
        while taken(&parts) > columns && parts.len() > 1 {
            let least = parts.iter().map(|(rank, ..)| *rank).max().unwrap_or_default();
            // The percentage is the most important part of the context usage.
            let whole = context.as_ref().filter(|full| least < FOLDER && !full.share.is_empty());
            let long = whole.and_then(|full| {
                Some((parts.iter().position(|(.., text)| *text == full.whole)?, &full.share))
            });
            if let Some((at, share)) = long {
                parts[at].2.clone_from(share);
                continue;
            }
            let at = parts.iter().rposition(|(rank, ..)| *rank == least).unwrap_or_default();
            parts.remove(at);
        }
        let mut spans: Vec<Span<'static>> = Vec::new();
        for (at, (_, role, text)) in parts.into_iter().enumerate() {
            if at > 0 {
                spans.push(span(theme, Role::Dim, " · "));
            }
            spans.push(span(theme, role, clipped(&text, columns)));
        }
        Line::from(spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(status: &Status, columns: usize) -> String {
        status.row(columns, Theme::PLAIN).spans.iter().map(|span| span.content.as_ref()).collect()
    }

    #[test]
    fn paths_below_the_home_directory_are_short() {
        let status =
            Status { cwd: "~/shop".into(), folder: "/home/me/shop".into(), ..Status::default() };
        assert_eq!(status.short("/home/me/shop"), "~/shop");
        assert_eq!(status.short("/home/me/shop/src"), "~/shop/src");
        assert_eq!(status.short("/home/me/.config/x.json:1"), "~/.config/x.json:1");
        assert_eq!(status.short("/home/meg/shop"), "/home/meg/shop");
        assert_eq!(status.short("built in"), "built in");
        assert_eq!(Status::default().short("/home/me"), "/home/me");
    }

    #[test]
    fn least_important_parts_are_left_out_first() {
        let status = Status {
            permission_mode: Some(PermissionMode::Plan),
            provider: "anthropic".into(),
            model: "claude-large-5".into(),
            vim_mode: None,
            effort: Some("high"),
            agent: "build".into(),
            cwd: "~/src/a/project/of/mine".into(),
            folder: "/home/me/src/a/project/of/mine".into(),
            tier: SandboxTier::Full,
            network: Some(NetworkAccess::Domains),
            branch: Some("feature/a-branch-with-a-long-name".into()),
            context: Some(24_500),
            limit: Some(48_000),
            cost: Some(4_200_000),
            jobs: 0,
            mode_label: None,
        };
        let rows: Vec<String> =
            [160, 130, 102, 70, 50, 30, 10].map(|columns| shown(&status, columns)).into();
        insta::assert_snapshot!(rows.join("\n"));
    }

    #[test]
    fn token_counts_are_short() {
        let table = [
            (7, "7"),
            (48_000, "48k"),
            (1234, "1.2k"),
            (99_999, "99.9k"),
            (123_456, "123k"),
            (1_250_000, "1.2M"),
        ];
        for (tokens, text) in table {
            assert_eq!(count_text(tokens), text);
        }
    }
}
