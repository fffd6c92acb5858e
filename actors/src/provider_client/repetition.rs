//! Detector of a reply that repeats itself without end. Pure.
//!
//! Small and quantised models fall into loops that only the token limit would end. The detector
//! reads the reply once, with constant work per byte and constant memory: a ring of the last
//! [`UNIT_BYTES_MAX`] bytes, and a table with the last position of each window of [`WINDOW`] bytes
//! (a rolling hash selects the slot). A window that returns proposes the distance to its last
//! position as the length of the repeated unit; while every further byte equals the one that many
//! bytes before it, the repetition grows.

/// Maximum length of a repeated unit, in bytes.
const UNIT_BYTES_MAX: usize = 4096;

/// Minimum number of repetitions of a unit.
const REPEATS_MIN: u64 = 16;

/// Minimum length of a repetition in bytes. It exceeds separators and padding in tables.
const REPEATED_BYTES_MIN: u64 = 4096;

/// Number of bytes that have to return before a unit is proposed. A shorter unit fills the window
/// several times.
const WINDOW: usize = 16;

/// Number of slots of the table of positions: twice the ring, a power of two.
const SLOTS: usize = 2 * UNIT_BYTES_MAX;

/// Multiplier of the rolling hash.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// A repetition that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Repetition {
    /// Length of the repeated unit in bytes.
    pub(crate) unit_bytes: u64,
    /// Number of complete repetitions.
    pub(crate) count: u64,
}

/// Detector for one text, such as the visible text of a reply. Its memory is allocated with the
/// first piece: some replies have no text.
#[derive(Debug, Default)]
pub(crate) struct RepetitionDetector {
    tables: Option<Tables>,
    /// Number of bytes read.
    position: u64,
    /// Rolling hash of the last [`WINDOW`] bytes.
    hash: u64,
    /// Proposed length of the unit; 0: none.
    unit: u64,
    /// Number of bytes since the proposal that equal the byte one unit before.
    repeated: u64,
}

#[derive(Debug)]
struct Tables {
    /// The last [`UNIT_BYTES_MAX`] bytes.
    ring: Vec<u8>,
    /// Positions behind the last window of each slot; 0: none.
    positions: Vec<u64>,
}

impl RepetitionDetector {
    /// Reads the next piece of the text. Returns a repetition as soon as it has at least
    /// [`REPEATS_MIN`] units and [`REPEATED_BYTES_MIN`] bytes; the rest of the piece is not read.
    pub(crate) fn read(&mut self, piece: &str) -> Option<Repetition> {
        let tables = self.tables.get_or_insert_with(|| Tables {
            ring: vec![0; UNIT_BYTES_MAX],
            positions: vec![0; SLOTS],
        });
        let out_of_window = const { power(BASE, WINDOW) };
        for byte in piece.bytes() {
            let at = |position: u64| index(position, UNIT_BYTES_MAX);
            let leaves = self.position.checked_sub(WINDOW as u64).map(|left| tables.ring[at(left)]);
            if self.unit > 0 && tables.ring[at(self.position - self.unit)] == byte {
                self.repeated += 1;
            } else {
                (self.unit, self.repeated) = (0, 0);
            }
            // The unit may be as long as the ring, so the byte is stored after the comparison.
            tables.ring[at(self.position)] = byte;
            self.position += 1;
            let left = leaves.map_or(0, |byte| u64::from(byte).wrapping_mul(out_of_window));
            self.hash =
                self.hash.wrapping_mul(BASE).wrapping_add(u64::from(byte)).wrapping_sub(left);
            let slot = index(self.hash >> 32, SLOTS);
            let before = std::mem::replace(&mut tables.positions[slot], self.position);
            if self.unit == 0 && before > 0 && self.position - before <= UNIT_BYTES_MAX as u64 {
                self.unit = self.position - before;
            }
            if self.repeated >= REPEATED_BYTES_MIN && self.repeated / self.unit >= REPEATS_MIN {
                // The first unit came before the proposal.
                return Some(Repetition {
                    unit_bytes: self.unit,
                    count: self.repeated / self.unit + 1,
                });
            }
        }
        None
    }
}

/// Remainder of `value` for a table of `len` entries, a power of two.
#[expect(clippy::cast_possible_truncation, reason = "the remainder is smaller than `len`")]
fn index(value: u64, len: usize) -> usize {
    (value & (len as u64 - 1)) as usize
}

const fn power(base: u64, exponent: usize) -> u64 {
    let (mut result, mut nth) = (1_u64, 0);
    while nth < exponent {
        result = result.wrapping_mul(base);
        nth += 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Result for a text that arrives in pieces of `bytes` bytes at most, and the bytes that were
    /// read before it.
    fn read_in(text: &str, bytes: usize) -> Option<(Repetition, usize)> {
        let mut detector = RepetitionDetector::default();
        let mut at = 0;
        while at < text.len() {
            let end = text.ceil_char_boundary((at + bytes).min(text.len()));
            if let Some(found) = detector.read(&text[at..end]) {
                return Some((found, usize::try_from(detector.position).unwrap()));
            }
            at = end;
        }
        None
    }

    fn prose() -> String {
        let sentence = |nth| format!("Sentence {} of {} has {nth}. ", nth * 7919, nth % 13);
        (0..4000).map(sentence).collect()
    }

    #[test]
    fn repetitions_are_found_and_other_texts_are_not() {
        let paragraph = prose()[..900].to_owned();
        let separator = format!("{}\n", "=".repeat(80));
        let row = |nth| format!("| row {nth} | 0 | 0 | 0 |\n");
        let rows: String = (0..800).map(row).collect();
        // A text, and the unit that is found.
        let table = [
            (String::new(), None),
            ("a".repeat(4000), None),
            ("a".repeat(5000), Some(1)),
            ("\n".repeat(5000), Some(1)),
            ("Go on. ".repeat(500), None),
            ("Go on. ".repeat(700), Some(7)),
            (format!("{}{}", prose(), "I am sorry. ".repeat(600)), Some(12)),
            ("ü – ".repeat(1000), Some(7)),
            (paragraph.repeat(10), None),
            (paragraph.repeat(20), Some(900)),
            // Too long a unit.
            (prose()[..6000].repeat(40), None),
            (prose(), None),
            (rows, None),
            (format!("{}{separator}", prose()).repeat(3), None),
            (separator.repeat(40), None),
            // A loop that ends is no endless one.
            (format!("{}{}", "no, ".repeat(900), prose()), None),
        ];
        for (row, (text, unit)) in table.into_iter().enumerate() {
            for bytes in [1, 3, 64, 4096, usize::MAX / 2] {
                let found = read_in(&text, bytes).map(|(found, _)| found.unit_bytes);
                assert_eq!(found, unit, "row {row}, pieces of {bytes} bytes");
            }
        }
    }

    #[test]
    fn repetition_is_found_soon_and_counted() {
        let text = format!("{}{}", prose(), "I am sorry. ".repeat(10_000));
        let (found, read) = read_in(&text, 5).unwrap();
        assert_eq!(found, Repetition { unit_bytes: 12, count: 342 });
        let needed = prose().len() + 4096;
        assert!((needed..needed + 100).contains(&read), "{read}");
    }

    proptest! {
        #[test]
        fn every_loop_is_found_and_random_text_is_not(
            before in "[a-z ]{0,300}", unit in "[a-zß ]{1,200}", noise in any::<[u64; 32]>(),
        ) {
            let repeated = format!("{before}{}", unit.repeat(6000 / unit.len() + 30));
            let found = read_in(&repeated, 7);
            prop_assert!(found.is_some());
            let (Repetition { unit_bytes, .. }, _) = found.unwrap();
            // The text repeats with this length, which may be a part or a multiple of the unit.
            let looped = &repeated.as_bytes()[before.len()..];
            let unit_bytes = usize::try_from(unit_bytes).unwrap();
            prop_assert!(looped.iter().zip(&looped[unit_bytes..]).all(|(one, next)| one == next));
            let word = |nth: usize| format!("{:x} ", noise[nth % 32].wrapping_mul(2 * nth as u64 + 1));
            let random: String = (0..2000).map(word).collect();
            prop_assert_eq!(read_in(&random, 7), None);
        }
    }
}
