//! Description of a call that started, from which a person or a model can check its effect.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A call that has started: description and start time. Stored in case its end remains unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StartedCall {
    /// One-line description of the call, from its tool.
    pub summary: String,
    /// Start time in milliseconds since 1970.
    pub started_ms: u64,
}

impl fmt::Display for StartedCall {
    /// Text for a model; the time is in UTC.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = utc_date(self.started_ms / 86_400_000);
        let seconds = self.started_ms / 1000 % 86_400;
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let summary = &self.summary;
        write!(
            f,
            "`{summary}`, begun at {year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} \
             UTC"
        )
    }
}

/// Converts days since 1 January 1970 to year, month and day of the Gregorian calendar. Internally
/// a year begins in March, so that a leap day is its last day.
fn utc_date(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    // Days since the first of March of the year 0.
    let days = days + 719_468;
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let leaps = day / 1460 + day / 146_096 - day / 36_524;
    let year = (day - leaps) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Five months from March have 153 days, and so have the five after them.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year + u64::from(month >= 10);
    (year, if month < 10 { month + 3 } else { month - 9 }, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_call_and_its_start_time() {
        let table = [
            (0, "1970-01-01 00:00:00"),
            (951_782_399_999, "2000-02-28 23:59:59"),
            (951_782_400_000, "2000-02-29 00:00:00"),
            (951_868_800_000, "2000-03-01 00:00:00"),
            (1_795_298_212_000, "2026-11-21 21:56:52"),
            (4_107_542_399_000, "2100-02-28 23:59:59"),
            (4_107_542_400_000, "2100-03-01 00:00:00"),
            (253_402_300_799_000, "9999-12-31 23:59:59"),
        ];
        for (started_ms, expected) in table {
            let begun = StartedCall { summary: "make".to_owned(), started_ms };
            assert_eq!(begun.to_string(), format!("`make`, begun at {expected} UTC"));
        }
        let far = StartedCall { summary: "make".to_owned(), started_ms: u64::MAX };
        assert!(far.to_string().ends_with(" UTC"), "{far}");
    }
}
