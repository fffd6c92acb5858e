//! Error codes: one variant, one meaning and one row in `docs/reference/error-codes.md` for each.

use std::fmt;

use serde::{Serialize, Serializer};

/// Defines the error codes. A row contains variant, error code, exit codes, meaning, and the usual
/// fix. `-` in place of exit codes: the error code belongs to a warning or is sent within an
/// answer, and does not end posse. An error code never changes its meaning.
macro_rules! error_codes {
    ($($variant:ident = $code:literal, $exit:literal, $meaning:literal, $fix:literal;)+) => {
        /// Code of a user-visible error or warning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(clippy::doc_markdown, reason = "the meanings are also plain text for users")]
        pub enum ErrorCode {
            $(#[doc = $meaning] $variant,)+
        }

        impl ErrorCode {
            /// All codes, in the order of `docs/reference/error-codes.md`.
            pub const ALL: &[ErrorCode] = &[$(ErrorCode::$variant),+];

            /// Text of the code, such as `CFG001`.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => $code,)+
                }
            }

            /// Row of `docs/reference/error-codes.md`: code, meaning, fix, exit codes.
            pub fn reference(self) -> [&'static str; 4] {
                match self {
                    $(ErrorCode::$variant => [$code, $meaning, $fix, $exit],)+
                }
            }
        }
    };
}

#[rustfmt::skip] // One row a line.
error_codes! {
    AgentNotFound = "AGN001", "3", "There is no agent of that name.", "choose one of `posse agents`";
    AgentFileUnreadable = "AGN002", "3", "An agent file cannot be read or parsed; it is left out.", "correct the file as `posse help agents` describes";
    AgentDefinitionInvalid = "AGN003", "3", "A field of an agent definition is invalid.", "correct the named field";
    AgentNameTaken = "AGN004", "3", "Another agent already has this name.", "give the agent another name";
    AgentToolUnknown = "AGN005", "3", "An agent definition names a tool that does not exist.", "use a name of `posse tools`";
    AgentProfileUnknown = "AGN006", "3", "An agent definition names an unknown provider profile.", "add the profile to `providers`, or leave it out";
    AgentProviderField = "AGN007", "3", "An agent definition contains a setting of a provider.", "put the setting into `providers` and name the profile";
    AgentNotPrimary = "AGN008", "3", "The agent works for other agents only, or is disabled as a main agent.", "choose another agent";
    AgentListUnknown = "AGN009", "3", "An agent may call an agent that does not exist or cannot be called.", "correct the list";
    AgentHiddenCharacters = "AGN010", "3", "An agent's text contains hidden characters; they are shown as escapes.", "remove them from the file";
    AgentFieldIgnored = "AGN011", "-", "Fields of agents of Claude Code have no counterpart; they are ignored.", "define the agent in .posse/agents, or leave the fields out";
    AttachNotRunning = "ATT001", "8", "No matching session is running.", "resume it with `posse resume ID`";
    AttachUnreachable = "ATT002", "8", "The socket of the session does not accept a connection.", "look at `posse sessions list`";
    AttachRefused = "ATT003", "8", "The session refused the client: the token or the user does not match.", "use the same user and state directory";
    AttachInvalidRequest = "ATT004", "-", "The first line of a client is not a valid attach request.", "use the same version of posse";
    AttachLimit = "ATT005", "8", "The maximum number of clients is attached.", "detach another client";
    AttachCut = "ATT006", "8", "The connection to the session ended.", "look at `posse sessions list`";
    AttachNoAnswer = "ATT007", "8", "The process that owns the session does not respond.", "continue or stop that process";
    BudgetWithoutPrice = "BUD001", "3", "A cost budget is set, but the price of the model is unknown.", "set the prices of the model";
    ConfigInvalidJson = "CFG001", "3", "A configuration file is not a valid JSON object.", "correct it at the named place";
    ConfigUnknownKey = "CFG002", "3", "A key or environment variable is unknown.", "correct its name";
    ConfigInvalidValue = "CFG003", "2, 3", "A value has the wrong type, form or range.", "use a value that fits";
    ConfigDuplicateKey = "CFG004", "3", "A key occurs twice.", "remove one of them";
    ConfigProjectForbidden = "CFG005", "-", "A project sets a key that a project may not set; it is ignored.", "set it in the user's configuration";
    ConfigTooLarge = "CFG006", "3", "A configuration file is too large.", "make it smaller";
    ConfigUnreadable = "CFG007", "3", "A configuration file cannot be read or is not a regular file.", "make it a readable file";
    ConfigNotUtf8 = "CFG008", "3", "A configuration file is not UTF-8.", "convert it to UTF-8";
    ConfigNulByte = "CFG009", "3", "A configuration file contains a NUL byte.", "remove the byte";
    FileNotTrusted = "CFG010", "3", "A file is not trusted: other users can change it, or its signature does not match.", "correct its permissions, or follow the message";
    ConfigContradiction = "CFG011", "2, 3", "Two settings contradict each other.", "change one of them";
    ConfigLaterVersion = "CFG012", "3", "A file was written by a later version of posse.", "use that version";
    RuleInvalid = "CFG013", "3", "A permission rule is invalid.", "correct the rule as `posse help rules` describes";
    WorkspaceRootUnusable = "CFG014", "3", "A folder cannot be used as a workspace.", "name an accessible folder";
    ConfigPlainSecret = "CFG015", "-", "A configuration file contains a key in plain text.", "name a variable in `apiKeyEnv`";
    WorkspaceIsOwnFolder = "CFG016", "2", "The workspace contains or is a folder of posse.", "work in another folder";
    VariableUnusable = "CFG018", "3", "An environment variable has an unusable name or value.", "correct the variable";
    StoreLocked = "CFG019", "8", "The files of grants and trust cannot be locked.", "wait for the other process, or check the folder";
    ProviderWithoutKey = "CFG020", "3", "The provider has no API key.", "set its variable";
    ProviderIncomplete = "CFG021", "3", "The provider lacks a required setting.", "set the named key";
    ProviderTypeUnavailable = "CFG022", "3", "The type of the provider is not available.", "use one of the listed types";
    ProviderNotConfigured = "CFG023", "3", "No provider is configured and no key is in the environment.", "set a key, or name a provider";
    ProviderUnknown = "CFG024", "3", "There is no provider of that name.", "use a listed name, or add it to `providers`";
    FallbackInvalid = "CFG025", "3", "A provider cannot be its own fallback.", "name another provider";
    ConfigTooManyMistakes = "CFG026", "3", "A file has more mistakes than are listed.", "correct the listed ones first";
    ConfigUnwritable = "CFG027", "3", "The configuration or a saved choice cannot be written.", "check the folder and the disk space";
    PatternTooWide = "CFG028", "3", "A pattern stands for too many paths.", "use `**` or fewer alternatives in braces";
    CassetteUnreadable = "CFG030", "3", "A cassette cannot be read.", "name a readable file";
    CassetteInvalid = "CFG031", "3", "A file is not a cassette.", "correct it at the named line";
    CassetteUnwritable = "CFG032", "3", "A cassette cannot be written.", "name another file";
    LoginSettingsInvalid = "CFG033", "3", "The settings of the ChatGPT login are invalid.", "correct the named setting";
    LoginMissing = "CFG034", "3", "There is no usable ChatGPT login.", "run `codex login`";
    StoreUnwritable = "CFG035", "8", "Grants or trust cannot be saved.", "check the folder and the disk space";
    RoleInvalid = "CFG040", "3", "A role names a provider or model that does not exist.", "correct `roles`";
    SettingNameUnknown = "CFG041", "3", "A setting is for a tool that does not exist, or that it does not apply to.", "use a name of `posse tools`";
    ConfigPathMissing = "CFG042", "-", "A configured file or folder does not exist.", "create it, or correct the path";
    CheckpointsUnavailable = "CKP001", "1", "Checkpoints are not available.", "install git";
    CheckpointNotFound = "CKP002", "2", "There is no such checkpoint for these folders.", "choose one of `posse checkpoints list`";
    CheckpointStore = "CKP003", "1", "The checkpoints cannot be read or written.", "check the disk space and the folder that is named";
    CheckpointUnconfirmed = "CKP004", "4", "A restore would change files that the user has changed, and there is no terminal.", "pass `--yes`, or `--keep-mine`";
    DirectoryUnusable = "CLI001", "2", "The working directory cannot be used.", "name an accessible folder";
    PromptMissing = "CLI002", "2", "There is no prompt.", "give one as an argument or on standard input";
    PromptUnreadable = "CLI003", "2", "Standard input is not a usable prompt.", "send UTF-8 text within the limit";
    FlagNeedsAnother = "CLI004", "2", "A flag requires another one.", "add the named flag";
    CommandUnknown = "CLI005", "2", "There is no such command.", "see `posse --help`";
    FlagUnknown = "CLI006", "2", "There is no such flag.", "see `posse --help`";
    FlagValueInvalid = "CLI007", "2", "A flag has no value or an invalid one.", "use one of the listed values";
    ArgumentMissing = "CLI008", "2", "A required argument is missing.", "add it";
    FlagsConflict = "CLI009", "2", "Arguments exclude each other.", "leave one out";
    NotAvailableYet = "CLI010", "2", "A command or flag is not available yet.", "see `posse --help`";
    TranscriptRequired = "CLI011", "2", "`--no-transcript` cannot be used with a stored session.", "add `--fork`";
    SelectionNotPossible = "CLI012", "2, 130", "No session was selected.", "name a session by its id";
    CommandLineInvalid = "CLI013", "2", "The command line is invalid in another way.", "see the message and `posse --help`";
    HelpTopicUnknown = "CLI015", "2", "There is no help about this word.", "choose one of `posse help`";
    SkillNeedsPrompt = "CLI016", "2", "`--skill` requires a prompt.", "say what is to be done";
    SystemPromptUnusable = "CLI017", "2", "The text or file of `--system-prompt` or `--append-system-prompt` is not usable.", "give UTF-8 text within the limit";
    DemoUnwritable = "DEM001", "1", "The sample repository of the demo cannot be written.", "set `TMPDIR` to a writable folder";
    DoctorOutput = "DOC001", "1", "The output of the doctor cannot be written.", "check where standard output leads";
    EditorFailed = "EDR001", "1", "The editor cannot be used.", "set `VISUAL` or `EDITOR`";
    EditedTextUnusable = "EDR002", "1", "The edited text cannot be used.", "follow the message";
    FoldersUnknown = "ENV001", "3", "The folders of posse cannot be determined.", "set `HOME` or `POSSE_HOME` to an absolute path";
    GrantsUnreadable = "GRT001", "8", "The stored grants cannot be used.", "look at `posse grants list`";
    GrantUnknown = "GRT002", "2", "There is no such grant.", "see `posse grants list --all`";
    HookNotStarted = "HK001", "-", "The program of a hook cannot be started.", "correct its command";
    HookTimedOut = "HK002", "-", "A hook ran too long or left processes behind.", "raise `timeoutMs`, or correct the program";
    HookFailed = "HK003", "-", "A hook was killed or exited with an unknown code.", "correct the program";
    HookAnswerInvalid = "HK004", "-", "The answer of a hook is invalid.", "answer as `posse help hooks` describes";
    HookEndedRun = "HK005", "1", "A hook ended the run.", "follow its message";
    HookCrashed = "HK006", "-", "The hook runner crashed.", "report it with the journal";
    HookSettingInvalid = "HK010", "3", "An entry of `hooks` is invalid.", "correct the named field";
    ImageUnreadable = "IMG001", "2", "An image cannot be read.", "name a readable image file";
    ImageTooManyBytes = "IMG002", "2", "An image has too many bytes.", "make it smaller";
    ImageFormatUnknown = "IMG003", "2", "The file is not a PNG, JPEG, GIF or WebP image.", "convert it to PNG";
    ImageDamaged = "IMG004", "2", "An image is empty or damaged.", "save it again";
    ImageTooCostly = "IMG005", "2", "Decoding an image takes too much memory or time.", "make it smaller";
    ImageTooDetailed = "IMG006", "2", "An image cannot be made small enough.", "cut out the part that matters";
    ModelWithoutVision = "IMG007", "2", "The model does not accept images.", "use a model with image input";
    SessionEndedUnexpectedly = "INT001", "70", "The session ended unexpectedly.", "run `posse sessions verify` and report the result";
    ComponentCrashed = "INT002", "70", "An internal component crashed too often.", "report it with the journal";
    InternalFailure = "INT003", "70", "An internal component cannot start or crashed.", "report the message";
    TooFewDescriptors = "INT004", "3", "Too few file descriptors are free.", "raise the limit of open files";
    JournalUnwritable = "JRN001", "8", "The journal cannot be written, so the run was stopped.", "free disk space";
    SessionFolderUnusable = "JRN002", "8", "The folder or journal of a session cannot be created.", "check the state directory";
    LimitReached = "LIM001", "6, 124", "A limit of the run was reached.", "raise the named limit";
    BudgetReached = "LIM002", "6", "The budget does not allow the next request.", "raise the budget";
    LoopDetected = "LOOP001", "1", "The model kept making the same failing call.", "tell the model what to do instead";
    ListOutput = "LST001", "1", "The answer of a listing cannot be written.", "check where standard output leads";
    AddressInvalid = "NET001", "3", "The address of a provider is invalid.", "correct `baseURL`";
    AnswerOutput = "OUT001", "1", "The answer of a run cannot be written.", "check where standard output leads";
    PackagingOutput = "PKG001", "1", "Manual pages or completions cannot be written.", "name a writable folder";
    PermissionUnanswered = "PRM001", "4", "Permission requests were denied because no person could be asked.", "run it in a terminal, pass `--permission-mode auto` or `--yes`, or add rules";
    ProviderUnavailable = "PRV001", "5", "The provider was unavailable for longer than `patience`.", "try again later; the session is kept";
    CredentialsRejected = "PRV003", "3", "The provider does not accept the credentials.", "correct the key or log in again";
    RequestRejected = "PRV004", "1", "The provider did not accept the request.", "see its message";
    ReplyWithheld = "PRV005", "1", "The provider withheld the reply.", "rephrase the prompt, or use another model";
    ContextFull = "PRV006", "1", "The conversation no longer fits the model's context.", "start a new session, or use a model with a larger context";
    ProviderRedirected = "PRV007", "1", "The provider redirects to another address.", "log in to the network, or correct `baseURL`";
    NotTheProvider = "PRV008", "1", "The server that answered is not the provider.", "log in to the network, or correct `baseURL`";
    HistoryRejected = "PRV009", "1", "The provider does not accept the history of the conversation.", "report it with the journal";
    ReplyRepeats = "PRV010", "5", "The model repeated the same text without end.", "set a temperature or a repetition penalty, or use another model";
    ReplayWithoutPrompt = "RPL001", "8", "The session has no prompt to replay.", "choose another session";
    ReplayTimedOut = "RPL002", "1", "A replay did not finish in time.", "report it with the journal";
    ReplayOutput = "RPL003", "1", "The output of a replay cannot be written.", "check where standard output leads";
    ExecutableUnknown = "SBX001", "70", "The path of the posse executable cannot be determined.", "start posse by its path";
    SandboxBackendUnknown = "SBX002", "2", "There is no such sandbox mechanism.", "use one of the listed names";
    SandboxTooWeak = "SBX003", "7", "The sandbox is weaker than required.", "see `posse doctor`";
    TrialFailed = "SBX004", "7", "A command cannot be tried, or the trial cannot be kept.", "see `posse doctor`";
    SessionNotFound = "SES002", "8", "There is no such session.", "see `posse sessions list`";
    SessionAmbiguous = "SES003", "8", "The id matches several sessions.", "give more of the id";
    SessionsUnreadable = "SES004", "8", "The stored sessions cannot be listed.", "check the state directory";
    SessionUnreadable = "SES005", "8", "A session cannot be read.", "check its folder";
    SessionDamaged = "SES006", "8", "A session is damaged.", "see journal.md";
    SessionsOutput = "SES007", "1", "The output of a session command cannot be written.", "check where standard output leads";
    DocumentUnwritable = "SES008", "1", "An exported document cannot be written.", "name another file";
    SessionInUse = "SES009", "8", "A session in use is not removed.", "end it first";
    SessionNotRemoved = "SES010", "1", "A session cannot be removed.", "check its folder";
    RemovalUnconfirmed = "SES011", "2", "Removal requires a confirmation, and there is no terminal.", "add `--yes`";
    SessionEmpty = "SES012", "8", "The session has no record.", "start a new one";
    NothingToResume = "SES013", "2", "The session has no unfinished work.", "give a prompt";
    SessionElsewhere = "SES014", "8", "There is no session of this directory or its project.", "see `posse sessions list --all`";
    SessionOpen = "SES015", "8", "Another process owns the session.", "attach to it, or pass `--fork`";
    SessionNotOpened = "SES016", "8", "The journal of the session cannot be opened.", "pass `--fork`, or see journal.md";
    SessionOtherFolder = "SES017", "2", "The session belongs to another folder.", "change to that folder, or pass `--cwd`";
    OutputsNotCopied = "SES018", "8", "The outputs of a session cannot be copied.", "check the disk space";
    SkillUnreadable = "SKL001", "3", "A skill cannot be read or parsed; it is left out.", "correct the file as `posse help skills` describes";
    SkillInvalid = "SKL002", "3", "A field of a skill is invalid; the skill is left out.", "correct the named field";
    SkillNameTaken = "SKL003", "3", "Another skill already has this name.", "give the skill another name";
    SkillQuestionable = "SKL004", "3", "A field of a usable skill is questionable.", "correct the named field";
    SkillNotFound = "SKL005", "3", "There is no skill of that name.", "choose one of `posse skills`";
    ProjectNotTrusted = "TRU001", "-", "A project's settings, agents or skills are not used because it is not trusted.", "see `posse trust add`";
    TrustDamaged = "TRU003", "8", "The stored trust is damaged.", "remove it with `posse trust clear`, then trust again";
    ProjectUnidentified = "TRU004", "2", "The folder of the project cannot be determined.", "name an accessible folder";
    TrustStale = "TRU005", "2", "The file differs from the accepted one.", "review it again with `posse trust show`";
    TrustUnconfirmed = "TRU006", "4", "Trusting a project requires a confirmation, and there is no terminal.", "review `posse trust show`, then follow the message";
    TrustTooMany = "TRU007", "8", "The maximum number of projects is trusted.", "`posse trust revoke PATH` ends one";
    TrustVariableUnknown = "TRU008", "2", "No provider of the project uses the variable that was given.", "see `posse trust show`";
    NothingToUndo = "UND001", "1", "There is no change to undo.", "see `posse checkpoints list`";
    ChangedSince = "UND002", "1", "The file was modified after the change.", "undo that modification first";
    BeforeImageMissing = "UND003", "1", "The earlier content of a file is not available.", "restore it by other means";
    GrantPrefixInvalid = "USE011", "2", "The value of `--grant` is not the beginning of one command.", "pass the first words of a command";
    CommandLinesInvalid = "USE012", "2", "Lines of standard input are not valid commands.", "write one JSON object per line";
    CommandsUnreadable = "USE013", "2", "The commands cannot be read or the answers cannot be written.", "check standard input and output";
}

/// Codes of tool results and of findings about commands, in ascending order: code, meaning, and the
/// usual reaction. They are the first word of a text for the model, which can also be shown to the
/// user; no command ends with them.
#[rustfmt::skip] // One row a line.
pub const RESULT_CODES: &[[&str; 3]] = &[
    ["ARG001", "An argument is missing, unknown or of the wrong type, or the arguments are not JSON.", "the model corrects the call"],
    ["ARG002", "A path or pattern has a form that the tool cannot use.", "the model uses another path"],
    ["ARG003", "A path is outside the workspace, names a secret file or an unsuitable kind of file, or the file is too large.", "add the folder with `--add-dir`, or let the model use another file"],
    ["ARG004", "An offset is beyond the end.", "the model uses a smaller offset"],
    ["ARG005", "A pattern is invalid or too long.", "the model corrects the pattern"],
    ["ARG006", "A time limit has no unit that can be recognized.", "the model gives milliseconds"],
    ["DLG001", "There is no agent of that name, or the caller may not call it.", "see `posse agents`, and `delegation` of the caller"],
    ["DLG002", "An agent calls itself, or an agent that waits for it.", "the model does the work itself"],
    ["DLG003", "The maximum depth of delegation is reached.", "raise `delegation.maxDepth`"],
    ["DLG004", "A task for a subagent is too long.", "the model puts it into files, or splits it"],
    ["DLG005", "There is no worktree for a subagent.", "follow the message"],
    ["DLG006", "The changes of a subagent cannot be shown or taken over.", "follow the message"],
    ["DLG007", "Changes of a subagent conflict with the workspace; nothing was changed.", "the model resolves the named files"],
    ["DLG008", "A reference that is passed to a subagent cannot be used.", "follow the message"],
    ["EDT001", "The text to replace is not in the file.", "the model reads the file again"],
    ["EDT002", "The text to replace is in the file several times.", "the model includes more lines"],
    ["EDT004", "The file changed since it was read.", "the model reads the file again"],
    ["EDT005", "The file is binary.", "the model changes it with a command"],
    ["EDT006", "Two edits of a call overlap.", "the model joins them"],
    ["EDT007", "The file was not read before the edit (`tools.edit.requireRead`).", "the model reads it first"],
    ["EDT008", "The hunks that the user chose cannot be made.", "the model makes the edit again"],
    ["FIL001", "A file or folder does not exist.", "the model corrects the path"],
    ["FIL002", "The system refused to read or write a file.", "see the reason in the message"],
    ["FIL003", "A file is read-only for everyone.", "make it writable if the change is wanted"],
    ["FIL005", "A binary file would be overwritten, and the change could not be taken back.", "the model moves the file away first"],
    ["HK007", "A file of a hook changed while it ran; the session continues with the earlier content.", "review the change, and start a new session"],
    ["JOB001", "The maximum number of background jobs is running.", "raise `tools.bash.jobs`, or stop a job"],
    ["JOB002", "There is no such background job.", "the model uses a listed id"],
    ["SBX010", "A command touched a protected file; the text says whether it was restored, moved or left.", "review the named file; see `posse help protected-files`"],
    ["SBX011", "A file with the name of a secret is hidden from commands, or shown to them as committed.", "see `posse help secrets`; list it in `sandbox.readSecrets` to show it"],
    ["SH001", "A command is empty.", "the model gives a command"],
    ["SH002", "A command is too long.", "the model writes a script"],
    ["SH003", "A command contains a NUL character.", "the model leaves it out"],
    ["SH005", "The working directory was removed; nothing was run.", "create it, or use another folder"],
    ["SH006", "A command could not be started; nothing was run.", "see the reason, and `posse doctor`"],
    ["SH007", "`unprotect` names a path that is not protected, or too many paths.", "the model leaves it out"],
    ["SH008", "A package manager would use the public registry, because the file that names the private one is hidden.", "let commands read the file with `sandbox.readSecrets`, or install the packages yourself"],
    ["SH009", "A dry run cannot be combined with another argument, or commands cannot be tried here.", "the model leaves `dryRun` or the other argument out; see `posse doctor`"],
    ["SH010", "A hidden file was moved or changed while a command ran in a trial, so its result is dropped.", "run it again; a background job that moves the file must end first"],
    ["SKL006", "Only the user may activate a skill.", "activate it with `--skill` or its slash command"],
    ["SKL007", "A file of a skill cannot be read.", "correct the file"],
];

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Compares a code with a text, for tests.
#[cfg(test)]
impl PartialEq<&str> for ErrorCode {
    fn eq(&self, text: &&str) -> bool {
        self.as_str() == *text
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn codes_are_ascending_and_none_is_used_twice() {
        let codes: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        assert!(codes.is_sorted_by(|a, b| a < b), "{codes:?}");
        for code in ErrorCode::ALL {
            let [text, meaning, fix, exit] = code.reference();
            let letters = text.trim_end_matches(|c: char| c.is_ascii_digit());
            assert_eq!(text.len(), letters.len() + 3, "{text}");
            assert!(meaning.ends_with('.') && !fix.ends_with('.'), "{text}");
            let is_exit = |exit: &str| exit == "-" || exit.parse::<u8>().is_ok();
            assert!(exit.split(", ").all(is_exit), "{text}: {exit}");
        }
        assert!(RESULT_CODES.is_sorted_by(|a, b| a[0] < b[0]));
        for [text, meaning, fix] in RESULT_CODES {
            assert!(!codes.contains(text), "{text}");
            assert!(meaning.ends_with('.') && !fix.ends_with('.'), "{text}");
        }
    }

    #[test]
    fn the_reference_page_has_a_row_for_each_code() {
        let mut table = String::new();
        for code in ErrorCode::ALL {
            let [text, meaning, fix, exit] = code.reference();
            writeln!(table, "| `{text}` | {meaning} | {fix} | {exit} |").unwrap();
        }
        for [text, meaning, fix] in RESULT_CODES {
            writeln!(table, "| `{text}` | {meaning} | {fix} |").unwrap();
        }
        let page = include_str!("../../../docs/reference/error-codes.md");
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        let written: Vec<&str> = rows.collect();
        assert!(
            written == table.lines().collect::<Vec<_>>(),
            "POSSE_WRITE_GUIDE=1 cargo test -p posse --test it reference writes these rows:\n{table}"
        );
    }
}
