//! Content search of the files below a folder, in path order.
//!
//! Files are opened beneath the folder without following links, so a path that is replaced
//! meanwhile cannot lead elsewhere. Secrets are not searched.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Take};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use globset::GlobMatcher;
use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkFinish, SinkMatch,
};
use nix::fcntl::OFlag;
use posse_actors::ports::FilePath;
use posse_base::failure::printable;
use posse_base::path_globs::PathGlobs;
use posse_base::secrets::is_secret;
use posse_base::secrets::readable::ReadableSecrets;

use crate::committed_secrets::CommittedSecrets;
use crate::listing::{self, Stop};
use crate::workspace::links::{Linked, SecretLinks};
use crate::workspace::walk::FOLDER;
use crate::workspace::{FileKind, FileStatus, denies_way, open_beneath};

/// Number of files that one thread takes at a time.
const BATCH: usize = 32;

/// Minimum number of files for a search with several threads.
const SMALL: usize = 256;

/// Maximum memory for one line in bytes. The search of a file ends at a longer line.
const LINE_BYTES_MAX: usize = 16 << 20;

/// Maximum number of skipped files in [`SearchResult::secret_names`].
const SECRET_NAMES_MAX: usize = 64;

/// Number of reads of one file, of at most 64 KiB each, after which the clock is read.
const READS_PER_CLOCK: u32 = 8;

/// Maximum number of characters shown of a line.
const LINE_CHARS_MAX: usize = 500;

/// Number of bytes shown before the match in a long line.
const BEFORE_MATCH: usize = 100;

/// Parameters of a search.
#[derive(Debug, Clone)]
pub struct Query {
    /// The regular expression to search for.
    pub matcher: RegexMatcher,
    /// Filter of files by their path relative to the folder; `None` searches all files.
    pub glob: Option<GlobMatcher>,
    /// Number of context lines before and after each match.
    pub context: usize,
    /// Files that are searched although their names look like secrets.
    pub readable_secrets: ReadableSecrets,
    /// Files that deny rules keep from the search.
    pub denied: PathGlobs,
    /// Paths by which the caller names the folder, if links lead from them to it.
    pub ways: Vec<FilePath>,
    /// Detector of secret files with other names; `None` disables this check.
    pub links: Option<Arc<SecretLinks>>,
    /// Files with the name of a secret that are as in the commit, which are searched. `None`: none.
    pub committed: Option<CommittedSecrets>,
}

impl Query {
    /// Returns true if a deny rule keeps the file at `path`, relative to `folder`, from the search.
    /// `below_root`: the path of the folder in its root.
    fn denies(&self, folder: &Path, below_root: &Path, path: &Path) -> bool {
        !self.denied.is_empty()
            && (self.denied.covers(&folder.join(path), &below_root.join(path))
                || denies_way(&self.denied, &self.ways, path))
    }

    /// Returns true if the filter accepts the file at `path`, relative to the folder.
    fn wants(&self, path: &Path) -> bool {
        self.glob.as_ref().is_none_or(|glob| glob.is_match(path))
    }
}

/// A line of the result: a match or context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchLine {
    /// Line number, from 1.
    pub number: u64,
    /// Text of the line: at most 500 characters of it, with control characters escaped.
    pub text: String,
    /// True for a match, false for context.
    pub is_match: bool,
    /// True if lines of the file are missing between the previous line of the result and this one.
    pub is_after_gap: bool,
}

/// Matches in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hits {
    /// Path relative to the folder; empty if only one file is searched.
    pub path: PathBuf,
    /// Matching lines and context lines, in the order of the file.
    pub lines: Vec<MatchLine>,
}

/// Result of a search.
#[derive(Debug, Default)]
pub struct SearchResult {
    /// Files with a match, sorted by path.
    pub files: Vec<Hits>,
    /// Number of matching lines in `files`.
    pub matches: usize,
    /// Number of files that the search has taken: those that were searched, that could not be
    /// opened, that turned out to be secret, or that came after the last needed match in the same
    /// batch.
    pub searched: usize,
    /// True if the result may be incomplete: a limit of matches, files or time was reached, or the
    /// search was cancelled.
    pub is_cut: bool,
    /// True if the file to search could not be opened for the search.
    pub is_unopened: bool,
    /// Number of files that were skipped as secrets: by their own name, by the name of a hard link
    /// to them, because they or a folder above them were renamed, or because a limit kept their
    /// other names unknown.
    pub secrets: usize,
    /// Up to 64 of the files that were skipped because of their names, relative to the folder.
    pub secret_names: Vec<PathBuf>,
    /// Number of files that were left out because of deny rules.
    pub denied: usize,
}

/// Searches the files below `folder` that [`listing`] finds, so without ignored, generated and
/// secret files and those that deny rules cover, for at most `matches_max` matching lines; `usize::MAX` is unlimited.
///
/// `folder` is absolute and resolved, and open as `directory`. `below_root` is the path of the
/// folder relative to its workspace root. The search ends early when `stop` is due.
pub fn tree(
    folder: &Path,
    directory: &OwnedFd,
    below_root: &Path,
    query: &Query,
    matches_max: usize,
    stop: &Stop,
) -> SearchResult {
    let listing = listing::of(folder, stop);
    let mut files = listing.files;
    files.retain(|path| query.wants(path));
    let wanted = files.len();
    files.retain(|path| !query.denies(folder, below_root, path));
    let denied = wanted - files.len();
    let before = files.len();
    let (mut committed, mut secret_names) = (BTreeSet::new(), Vec::new());
    files.retain(|path| {
        if !is_secret(&below_root.join(path).to_string_lossy()) {
            return true;
        }
        let whole = folder.join(path);
        if query.readable_secrets.contains(&whole) {
            return true;
        }
        let is_committed = query.committed.as_ref().is_some_and(|secrets| secrets.list(&whole));
        if is_committed {
            committed.insert(path.clone());
        } else if secret_names.len() < SECRET_NAMES_MAX {
            secret_names.push(path.clone());
        }
        is_committed
    });
    let secrets = before - files.len();

    let work = SearchWork {
        files: &files,
        committed: &committed,
        folder,
        directory,
        query,
        matches_max,
        stop,
        next: AtomicUsize::new(0),
        is_enough: AtomicBool::new(false),
        secrets: AtomicUsize::new(secrets),
        done: Mutex::default(),
    };
    let threads = if files.len() < SMALL { 1 } else { listing::threads() };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Without a further thread, the others do its part.
            let thread = std::thread::Builder::new();
            if thread.spawn_scoped(scope, || work.search_batches()).is_err() {
                break;
            }
        }
        work.search_batches();
    });
    let secrets = work.secrets.into_inner();
    let done = work.done.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut found = done.sum_up(matches_max);
    (found.secrets, found.denied, found.secret_names) = (secrets, denied, secret_names);
    found.is_cut |= listing.is_cut || stop.is_due();
    found
}

enum SearchInput {
    /// The file, limited to the size it had when opened, which saves the read that would find its
    /// end. A file of size 0 is not limited.
    File(Take<File>),
    /// File with the name of a secret that is as in the commit, and a second descriptor of it.
    Committed(Take<File>, File),
    /// Secret file with another name, which is not searched.
    Secret,
}

/// Path and descriptor of the folder that contains the last opened file, and true if it belongs to
/// a renamed secret folder. Files in path order often share it.
type OpenFolder<'a> = Option<(&'a Path, OwnedFd, bool)>;

/// Searches one open file for at most `matches_max` matching lines. The glob of the query does not
/// apply, and secrets are not detected.
pub fn file(
    path: PathBuf,
    file: File,
    query: &Query,
    matches_max: usize,
    stop: &Stop,
) -> SearchResult {
    let (file, max) = (file.take(u64::MAX), matches_max.saturating_add(1));
    let lines = search(&mut searcher(query), file, query, max, stop);
    let mut done = FinishedBatches::default();
    done.batches.insert(0, (1, 0, vec![Hits { path, lines }]));
    let mut found = done.sum_up(matches_max);
    found.is_cut |= stop.is_due();
    found
}

/// State of a search that its threads share.
struct SearchWork<'a> {
    files: &'a [PathBuf],
    /// Those of the files that have the name of a secret and were as in the commit.
    committed: &'a BTreeSet<PathBuf>,
    folder: &'a Path,
    directory: &'a OwnedFd,
    query: &'a Query,
    matches_max: usize,
    stop: &'a Stop,
    next: AtomicUsize,
    is_enough: AtomicBool,
    secrets: AtomicUsize,
    done: Mutex<FinishedBatches>,
}

/// Results of the finished batches of files.
#[derive(Default)]
struct FinishedBatches {
    /// Results by the index of the first file of the batch: number of files searched, number of
    /// matches, and hits.
    batches: BTreeMap<usize, (usize, usize, Vec<Hits>)>,
    /// Index of the first file of the first unfinished batch.
    contiguous: usize,
    /// Number of matches in the batches before `contiguous`.
    contiguous_matches: usize,
}

impl SearchWork<'_> {
    /// True if `file`, opened at `path`, has the name of a secret and is as in the commit.
    fn is_committed(&self, path: &Path, file: BorrowedFd<'_>) -> bool {
        let committed = self.query.committed.as_ref().filter(|_| self.committed.contains(path));
        committed.is_some_and(|committed| committed.contain(&self.folder.join(path), file))
    }

    /// Opens the file `path` beneath the folder for the search, or finds that it is secret under
    /// another name. `None` if it cannot be opened, or is no regular file any more.
    fn open<'a>(&self, last: &mut OpenFolder<'a>, path: &'a Path) -> Option<SearchInput> {
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let folder = path.parent()?;
        let links = self.query.links.as_ref();
        if last.as_ref().is_none_or(|(last, ..)| *last != folder) {
            let opened = open_beneath(self.directory, folder, FOLDER).ok()?;
            let links = links.filter(|links| links.has_secret_folders());
            let is_secret = links.is_some_and(|links| links.is_in_secret_folder(&opened));
            *last = Some((folder, opened, is_secret));
        }
        let (_, parent, is_secret) = last.as_ref()?;
        if *is_secret {
            return Some(SearchInput::Secret);
        }
        let opened = open_beneath(parent, Path::new(path.file_name()?), flags).ok()?;
        let status = FileStatus::of(&opened).ok()?;
        // A pipe or device may have replaced the file.
        if status.kind != FileKind::File {
            return None;
        }
        // The files of the kernel have no size.
        let length = if status.size == 0 { u64::MAX } else { status.size };
        if self.is_committed(path, opened.as_fd()) {
            let copy = File::from(opened.try_clone().ok()?);
            return Some(SearchInput::Committed(File::from(opened).take(length), copy));
        }
        let is_secret = links.is_some_and(|links| links.judge(&status, &opened) != Linked::Open);
        // One that was as in the commit when the files were listed.
        if is_secret || self.committed.contains(path) {
            return Some(SearchInput::Secret);
        }
        Some(SearchInput::File(File::from(opened).take(length)))
    }

    fn search_batches(&self) {
        let mut searcher = searcher(self.query);
        let mut last = None;
        loop {
            let first = self.next.fetch_add(BATCH, Ordering::Relaxed);
            let is_enough = self.is_enough.load(Ordering::Relaxed);
            if first >= self.files.len() || self.stop.is_due() || is_enough {
                return;
            }
            let batch = &self.files[first..self.files.len().min(first + BATCH)];
            let mut hits = Vec::new();
            let mut matches = 0;
            for path in batch {
                let (opened, committed) = match self.open(&mut last, path) {
                    Some(SearchInput::File(opened)) => (opened, None),
                    Some(SearchInput::Committed(opened, copy)) => (opened, Some(copy)),
                    Some(SearchInput::Secret) => {
                        self.secrets.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    None => continue,
                };
                let max = self.matches_max.saturating_sub(matches).saturating_add(1);
                let lines = search(&mut searcher, opened, self.query, max, self.stop);
                if committed.is_some_and(|file| !self.is_committed(path, file.as_fd())) {
                    // The user may have written a secret into it meanwhile.
                    self.secrets.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                matches += lines.iter().filter(|line| line.is_match).count();
                if !lines.is_empty() {
                    hits.push(Hits { path: path.clone(), lines });
                }
                if matches > self.matches_max || self.stop.is_due() {
                    break;
                }
            }
            let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
            done.batches.insert(first, (batch.len(), matches, hits));
            if done.contiguous_matches() > self.matches_max {
                self.is_enough.store(true, Ordering::Relaxed);
            }
        }
    }
}

impl FinishedBatches {
    /// Returns the number of matches in the finished batches before the first unfinished batch.
    fn contiguous_matches(&mut self) -> usize {
        while let Some((_, matches, _)) = self.batches.get(&self.contiguous) {
            self.contiguous_matches += matches;
            self.contiguous += BATCH;
        }
        self.contiguous_matches
    }

    fn sum_up(self, matches_max: usize) -> SearchResult {
        let mut found = SearchResult::default();
        for (searched, _, hits) in self.batches.into_values() {
            found.searched += searched;
            for mut hits in hits.into_iter().filter(|hits| !hits.lines.is_empty()) {
                let room = matches_max - found.matches;
                if hits.matches() > room {
                    hits.keep(room);
                    found.is_cut = true;
                }
                found.matches += hits.matches();
                if !hits.lines.is_empty() {
                    found.files.push(hits);
                }
            }
        }
        found
    }
}

impl Hits {
    /// Number of matching lines.
    pub fn matches(&self) -> usize {
        self.lines.iter().filter(|line| line.is_match).count()
    }

    /// Drops all lines after the first `matches` matching lines.
    fn keep(&mut self, matches: usize) {
        let mut left = matches;
        let end = self.lines.iter().position(|line| {
            let is_over = left == 0;
            left -= usize::from(line.is_match && !is_over);
            is_over
        });
        self.lines.truncate(end.unwrap_or(self.lines.len()));
    }
}

fn searcher(query: &Query) -> Searcher {
    // Never a memory map: a file that shrinks meanwhile would kill the process.
    SearcherBuilder::new()
        .line_number(true)
        .before_context(query.context)
        .after_context(query.context)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(LINE_BYTES_MAX))
        .build()
}

fn search(
    searcher: &mut Searcher,
    file: Take<File>,
    query: &Query,
    matches_max: usize,
    stop: &Stop,
) -> Vec<MatchLine> {
    let (matcher, lines) = (&query.matcher, Vec::new());
    let mut collector = Collector { matcher, left: matches_max, stop, lines, is_after_gap: false };
    let reader = Interruptible { file, stop, reads: 0 };
    if let Err(error) = searcher.search_reader(&query.matcher, reader, &mut collector) {
        tracing::debug!(%error, "a file was not searched to its end");
    }
    collector.lines
}

/// Reader of a file that reports the end of the file when the search must stop.
struct Interruptible<'a> {
    file: Take<File>,
    stop: &'a Stop,
    reads: u32,
}

impl Read for Interruptible<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads = self.reads.wrapping_add(1);
        // Small files are read at once; for them the clock is read between files.
        let is_over = self.reads.is_multiple_of(READS_PER_CLOCK) && self.stop.is_due();
        if is_over || self.stop.is_cancelled() { Ok(0) } else { self.file.read(buffer) }
    }
}

struct Collector<'a> {
    matcher: &'a RegexMatcher,
    left: usize,
    stop: &'a Stop,
    lines: Vec<MatchLine>,
    is_after_gap: bool,
}

impl Collector<'_> {
    fn add(&mut self, number: Option<u64>, bytes: &[u8], is_match: bool) {
        let text = shown(bytes, is_match.then_some(self.matcher));
        let is_after_gap = std::mem::take(&mut self.is_after_gap);
        let number = number.unwrap_or_default();
        self.lines.push(MatchLine { number, text, is_match, is_after_gap });
    }
}

impl Sink for Collector<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        self.add(found.line_number(), found.bytes(), true);
        Ok(!self.stop.is_cancelled())
    }

    fn context(&mut self, _: &Searcher, beside: &SinkContext<'_>) -> io::Result<bool> {
        self.add(beside.line_number(), beside.bytes(), false);
        Ok(true)
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        self.is_after_gap = true;
        Ok(true)
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> io::Result<()> {
        // Matches in a file that turned out to be binary do not count.
        if finish.binary_byte_offset().is_some() {
            self.lines.clear();
        }
        Ok(())
    }
}

/// Formats a line for the model: escaped, and if it is long, shortened to the part around the
/// match. `matcher` is `None` for a context line.
fn shown(bytes: &[u8], matcher: Option<&RegexMatcher>) -> String {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    if bytes.len() <= LINE_CHARS_MAX {
        return printable(&String::from_utf8_lossy(bytes));
    }
    let found = matcher.and_then(|matcher| matcher.find(bytes).ok().flatten());
    let at = found.map_or(0, |found| found.start());
    // As many bytes as the characters can need at most.
    let from = if at > LINE_CHARS_MAX - BEFORE_MATCH { at - BEFORE_MATCH } else { 0 };
    let window = &bytes[from..bytes.len().min(from + LINE_CHARS_MAX * 4)];
    let window = if from > 0 { crate::output::whole_start(window) } else { window };
    let window = crate::output::whole_end(window);
    let text = String::from_utf8_lossy(window);
    let end = text.char_indices().nth(LINE_CHARS_MAX).map_or(text.len(), |(end, _)| end);
    let before = if from > 0 { "…" } else { "" };
    let after = if from + window.len() < bytes.len() || end < text.len() { "…" } else { "" };
    format!("{before}{}{after}", printable(&text[..end]))
}
