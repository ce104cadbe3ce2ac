//! Points in time as RFC 3339 text in UTC.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// When this process began: the first time that this is asked.
pub fn began() -> SystemTime {
    static BEGAN: OnceLock<SystemTime> = OnceLock::new();
    *BEGAN.get_or_init(SystemTime::now)
}

/// `2026-11-21T04:05:06Z`; a time before 1970 counts as 1970.
pub fn rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The seconds since 1970 of such a text; `None` if it is none.
pub fn seconds(text: &str) -> Option<u64> {
    let digits: Vec<u64> =
        text.split(|c: char| !c.is_ascii_digit()).take(6).map(str::parse).collect::<Result<_, _>>().ok()?;
    let [year, month, day, hour, minute, second] = digits[..] else { return None };
    if !(1970..10_000).contains(&year)
        || !(1..=12).contains(&month)
        || day == 0
        || hour > 23
        || minute > 59
        || second > 60
    {
        return None;
    }
    let before = (1970..year).map(days_of_year).sum::<u64>();
    let months: u64 = months(year).iter().take(month as usize - 1).sum();
    Some(((before + months + day - 1) * 24 + hour) * 3600 + minute * 60 + second)
}

/// The Gregorian date of a day counted from 1970-01-01.
fn date(mut days: u64) -> (u64, u64, u64) {
    let mut year = 1970;
    while days >= days_of_year(year) {
        days -= days_of_year(year);
        year += 1;
    }
    let mut month = 1;
    for length in months(year) {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

fn months(year: u64) -> [u64; 12] {
    [31, days_of_year(year) - 337, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
}

fn days_of_year(year: u64) -> u64 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    if leap { 366 } else { 365 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::time::Duration;

    #[rstest]
    #[case(0, "1970-01-01T00:00:00Z")]
    #[case(951_782_400, "2000-02-29T00:00:00Z")]
    #[case(951_868_799, "2000-02-29T23:59:59Z")]
    #[case(1_798_761_599, "2026-12-31T23:59:59Z")]
    #[case(4_107_542_400, "2100-03-01T00:00:00Z")]
    fn dates(#[case] seconds: u64, #[case] expected: &str) {
        assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        assert_eq!(super::seconds(expected), Some(seconds));
    }

    #[rstest]
    #[case("")]
    #[case("yesterday")]
    #[case("2026-13-01T00:00:00Z")]
    #[case("2026-01-01")]
    fn what_is_no_time(#[case] text: &str) {
        assert_eq!(super::seconds(text), None);
    }
}
