//! Options and operands in the words of a program, as `getopt_long(3)` reads them: letters in one
//! word, values in the same or the next word, and only operands after `--`.

/// Options of a program whose values are words of their own.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ValuedOptions {
    /// Letters with a value: the rest of the word, or the next word.
    pub(crate) letters: &'static str,
    /// Letters with a value only in the rest of the word.
    pub(crate) attached: &'static str,
    /// Long options with a value: after `=`, or the next word.
    pub(crate) long: &'static [&'static str],
}

/// Arguments of a program.
#[derive(Debug, Default)]
pub(crate) struct Arguments<'w> {
    options: Vec<(OptionName<'w>, Option<&'w str>)>,
    /// Words that are neither options nor values of them.
    pub(crate) operands: Vec<&'w str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OptionName<'w> {
    Letter(char),
    /// With its hyphens, as written: it may be abbreviated.
    Long(&'w str),
}

impl<'w> Arguments<'w> {
    /// Reads `words`.
    pub(crate) fn read(
        words: impl IntoIterator<Item = &'w str>,
        valued: ValuedOptions,
    ) -> Arguments<'w> {
        let mut words = words.into_iter();
        let mut arguments = Arguments::default();
        while let Some(word) = words.next() {
            if word == "--" {
                arguments.operands.extend(words);
                break;
            }
            if word.starts_with("--") {
                let (name, value) = match word.split_once('=') {
                    Some((name, value)) => (name, Some(value)),
                    None if valued.long.iter().any(|long| is_long(word, long)) => {
                        (word, words.next())
                    }
                    None => (word, None),
                };
                arguments.options.push((OptionName::Long(name), value));
            } else if let Some(letters) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) {
                for (at, letter) in letters.char_indices() {
                    let rest = &letters[at + letter.len_utf8()..];
                    let has_value = valued.letters.contains(letter);
                    let value = match (has_value, rest) {
                        (true, "") => words.next(),
                        (true, rest) => Some(rest),
                        (false, _) => None,
                    };
                    arguments.options.push((OptionName::Letter(letter), value));
                    if has_value || valued.attached.contains(letter) {
                        break;
                    }
                }
            } else {
                arguments.operands.push(word);
            }
        }
        arguments
    }

    /// True if the option `letter`, or `long` in full or abbreviated, is given.
    pub(crate) fn has(&self, letter: Option<char>, long: &str) -> bool {
        self.options.iter().any(|(name, _)| is_named(*name, letter, long))
    }

    /// Value of the option `letter` or `long`.
    pub(crate) fn value(&self, letter: Option<char>, long: &str) -> Option<&'w str> {
        self.options.iter().find_map(
            |(name, value)| {
                if is_named(*name, letter, long) { *value } else { None }
            },
        )
    }

    /// All values of the option `letter` or `long`, in order.
    pub(crate) fn values(&self, letter: Option<char>, long: &str) -> impl Iterator<Item = &'w str> {
        let named = self.options.iter().filter(move |(name, _)| is_named(*name, letter, long));
        named.filter_map(|(_, value)| *value)
    }

    /// True if a long option begins with `--no-`, which takes an earlier option back.
    pub(crate) fn has_negation(&self) -> bool {
        self.options.iter().any(|(name, _)| match name {
            OptionName::Long(name) => name.starts_with("--no-"),
            OptionName::Letter(_) => false,
        })
    }
}

fn is_named(name: OptionName<'_>, letter: Option<char>, long: &str) -> bool {
    match name {
        OptionName::Letter(given) => Some(given) == letter,
        OptionName::Long(given) => is_long(given, long),
    }
}

/// True if `given` is `long` or an abbreviation of it.
fn is_long(given: &str, long: &str) -> bool {
    given.len() > 2 && long.starts_with(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_values_and_operands_are_told_apart() {
        let valued =
            ValuedOptions { letters: "te", attached: "i", long: &["--target", "--exclude"] };
        for (line, operands, targets, is_forced) in [
            ("-f a b", "a b", "", true),
            ("a -f b", "a b", "", true),
            ("-- -f b", "-f b", "", false),
            ("-tf a", "a", "f", false),
            ("-t -f a", "a", "-f", false),
            ("-vft d a", "a", "d", true),
            ("-e -- -f a", "a", "", true),
            ("--targ -f a", "a", "-f", false),
            ("--target=-f a", "a", "-f", false),
            ("--forc a -", "a -", "", true),
            ("-if a", "a", "", false),
            ("--exclude", "", "", false),
        ] {
            let arguments = Arguments::read(line.split(' '), valued);
            assert_eq!(arguments.operands.join(" "), operands, "{line}");
            let target = arguments.value(Some('t'), "--target").unwrap_or_default();
            assert_eq!(target, targets, "{line}");
            assert_eq!(arguments.has(Some('f'), "--force"), is_forced, "{line}");
        }
        let arguments = Arguments::read(["-n", "--no-dry-run"], valued);
        assert!(arguments.has_negation());
    }
}
