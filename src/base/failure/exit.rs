//! Exit codes: one variant, one number and one row in `docs/reference/exit-codes.md` for each.

/// Defines the exit codes. A row contains variant, number and meaning.
macro_rules! exit_codes {
    ($($variant:ident = $number:literal, $meaning:literal;)+) => {
        /// Exit codes of posse. They are part of its documented interface.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Exit {
            $(#[doc = $meaning] $variant = $number,)+
        }

        impl Exit {
            /// All exit codes, in ascending order.
            pub const ALL: &[Exit] = &[$(Exit::$variant),+];

            /// Meaning of the exit code, in one sentence.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Exit::$variant => $meaning,)+
                }
            }
        }
    };
}

#[rustfmt::skip] // One row a line.
exit_codes! {
    Done = 0, "The run or the command succeeded.";
    Failed = 1, "The run or the command failed.";
    Usage = 2, "Invalid command line, or an argument that cannot be used.";
    Configuration = 3, "The configuration, the environment, an agent or skill file, or the credentials are invalid or missing.";
    Permission = 4, "A permission, or the confirmation of trust, was needed and no person could be asked.";
    Provider = 5, "The provider was unavailable for longer than the configured patience.";
    Limit = 6, "A limit of the run, such as its steps or its budget, was reached.";
    Sandbox = 7, "The sandbox is weaker than required.";
    Session = 8, "A session, its journal, or the files of grants and trust cannot be found or used.";
    Internal = 70, "A bug in posse.";
    Timeout = 124, "The time limit of the run was reached.";
    HangUp = 129, "posse was ended by SIGHUP.";
    Interrupt = 130, "posse was ended by SIGINT, or by the user with Ctrl+C.";
    Terminate = 143, "posse was ended by SIGTERM.";
}
