//! Table of the languages that are highlighted.

/// Syntax of a language, as far as highlighting needs it.
#[derive(Debug)]
pub(super) struct Language {
    pub(super) names: &'static [&'static str],
    /// Keywords, separated by spaces.
    pub(super) keywords: &'static str,
    /// Delimiter of a comment to the end of the line; `None` if the language has none.
    pub(super) line_comment: Option<&'static str>,
    /// Start and end of a comment of several lines; `None` if the language has none.
    pub(super) block_comment: Option<(&'static str, &'static str)>,
    pub(super) quotes: &'static str,
    /// True if triple quotes delimit a string of several lines.
    pub(super) triple_quotes: bool,
}

/// Default values: strings in single and in double quotes, and no comments.
const PLAIN: Language = Language {
    names: &[],
    keywords: "",
    line_comment: None,
    block_comment: None,
    quotes: "\"'",
    triple_quotes: false,
};

const C_BLOCK: Option<(&str, &str)> = Some(("/*", "*/"));

pub(super) const LANGUAGES: &[Language] = &[
    Language {
        names: &["rust", "rs"],
        keywords: "as async await break const continue crate dyn else enum extern false fn for if \
            impl in let loop match mod move mut pub ref return self Self static struct super \
            trait true type unsafe use where while",
        line_comment: Some("//"),
        block_comment: C_BLOCK,
        quotes: "\"",
        ..PLAIN
    },
    Language {
        names: &["python", "py", "python3"],
        keywords: "and as assert async await break class continue def del elif else except False \
            finally for from global if import in is lambda None nonlocal not or pass raise return \
            self True try while with yield match case",
        line_comment: Some("#"),
        triple_quotes: true,
        ..PLAIN
    },
    Language {
        names: &["javascript", "js", "jsx", "typescript", "ts", "tsx", "mjs"],
        keywords: "abstract any as async await boolean break case catch class const continue \
            default delete do else enum export extends false finally for from function if \
            implements import in instanceof interface let new null number of private protected \
            public readonly return static string super switch this throw true try type typeof \
            undefined var void while yield",
        line_comment: Some("//"),
        block_comment: C_BLOCK,
        quotes: "\"'`",
        ..PLAIN
    },
    Language {
        names: &["go", "golang"],
        keywords: "break case chan const continue default defer else false for func go if import \
            interface map nil package range return select struct switch true type var",
        line_comment: Some("//"),
        block_comment: C_BLOCK,
        quotes: "\"'`",
        ..PLAIN
    },
    Language {
        names: &[
            "c", "h", "cpp", "c++", "cc", "hpp", "java", "kotlin", "kt", "swift", "csharp", "cs",
            "scala", "dart", "php", "zig", "proto",
        ],
        keywords: "abstract auto bool boolean break case catch char class const constexpr continue \
            default delete do double else enum extends extern false final float for fun func \
            function if implements import include int interface let long namespace new nil null \
            nullptr object override package private protected public return short signed sizeof \
            static struct super switch template this throw true try typedef typename union \
            unsigned using val var virtual void volatile when while",
        line_comment: Some("//"),
        block_comment: C_BLOCK,
        ..PLAIN
    },
    Language {
        names: &["bash", "sh", "shell", "zsh", "console", "fish"],
        keywords: "case do done elif else esac exit export fi for function if in local return set \
            then until while cd echo source unset readonly trap",
        line_comment: Some("#"),
        ..PLAIN
    },
    Language {
        names: &["ruby", "rb", "elixir", "ex", "crystal"],
        keywords: "and begin break case class def do else elsif end ensure false fn for if in \
            module next nil not or private raise require rescue return self super then true \
            unless until when while yield defmodule defp",
        line_comment: Some("#"),
        ..PLAIN
    },
    Language {
        names: &["lua"],
        keywords: "and break do else elseif end false for function if in local nil not or repeat \
            return then true until while",
        line_comment: Some("--"),
        block_comment: Some(("--[[", "]]")),
        ..PLAIN
    },
    Language {
        names: &["sql", "postgresql", "mysql", "sqlite"],
        keywords: "add alter and as asc begin between by case commit create delete desc distinct \
            drop else end exists foreign from group having in index inner insert into is join key \
            left like limit not null on or order outer primary references returning right select \
            set table then union unique update values view when where with",
        line_comment: Some("--"),
        block_comment: C_BLOCK,
        quotes: "'\"",
        ..PLAIN
    },
    Language {
        names: &["json", "jsonc", "json5", "jsonl"],
        keywords: "true false null",
        line_comment: Some("//"),
        block_comment: C_BLOCK,
        quotes: "\"",
        ..PLAIN
    },
    Language {
        names: &["yaml", "yml", "toml", "ini", "dockerfile", "make", "makefile", "nix", "hcl"],
        keywords: "true false null yes no on off FROM RUN COPY ENV WORKDIR CMD ENTRYPOINT ARG \
            EXPOSE let in with import",
        line_comment: Some("#"),
        triple_quotes: true,
        ..PLAIN
    },
    Language {
        names: &["css", "scss", "less"],
        keywords: "important media import root hover auto none inherit",
        block_comment: C_BLOCK,
        ..PLAIN
    },
    Language {
        names: &["haskell", "hs", "elm", "purescript"],
        keywords: "case class data deriving do else if import in infix instance let module newtype \
            of then type where",
        line_comment: Some("--"),
        block_comment: Some(("{-", "-}")),
        quotes: "\"",
        ..PLAIN
    },
    Language {
        names: &["html", "xml", "svg", "vue", "svelte"],
        block_comment: Some(("<!--", "-->")),
        quotes: "\"",
        ..PLAIN
    },
];
