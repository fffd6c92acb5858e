//! Tolerant parsing of JSON values that servers write in different ways, without building a tree.
//!
//! A field of an unexpected type counts as absent; unknown fields are skipped. Text borrows from
//! the input where possible.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Largest plausible number of tokens in a usage figure. A larger one is a mistake of the server
/// and ignored.
const TOKENS_MAX: u64 = 100_000_000;

/// Parses `json`. If lone surrogates prevent that, they are first replaced in the buffer `room`.
pub(crate) fn parse<'a, T: Deserialize<'a>>(
    json: &'a str,
    room: &'a mut String,
) -> Result<T, String> {
    match serde_json::from_str(json) {
        Ok(value) => Ok(value),
        Err(error) => {
            *room = replace_surrogates(json).ok_or_else(|| error.to_string())?;
            serde_json::from_str(room).map_err(|_| error.to_string())
        }
    }
}

/// Text of a JSON value: a string, a number as text, or the joined members `text` of a list of
/// objects. Any other value is `None`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Text<'a>(pub(crate) Option<Cow<'a, str>>);

impl Text<'_> {
    /// The text, empty if there is none.
    pub(crate) fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

impl From<&'static str> for Text<'_> {
    fn from(text: &'static str) -> Self {
        Text(Some(Cow::Borrowed(text)))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Text<'a>, D::Error> {
        from.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Some(Cow::Borrowed(text))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Some(Cow::Owned(text.to_owned()))))
    }

    fn visit_string<E>(self, text: String) -> Result<Text<'de>, E> {
        Ok(Text(Some(Cow::Owned(text))))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Text<'de>, E> {
        Ok(Text(Some(Cow::Owned(number.to_string()))))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Text<'de>, E> {
        Ok(Text(Some(Cow::Owned(number.to_string()))))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Text<'de>, E> {
        Ok(Text(Some(Cow::Owned(number.to_string()))))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Text<'de>, E> {
        Ok(Text(None))
    }

    fn visit_unit<E>(self) -> Result<Text<'de>, E> {
        Ok(Text(None))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut parts: S) -> Result<Text<'de>, S::Error> {
        #[derive(Default, serde::Deserialize)]
        #[serde(default)]
        struct ParsedPart<'p> {
            #[serde(borrow)]
            text: Text<'p>,
        }
        let mut whole = String::new();
        while let Some(part) = parts.next_element::<Object<ParsedPart<'de>>>()? {
            whole.push_str(part.0.unwrap_or_default().text.as_str());
        }
        Ok(Text(Some(Cow::Owned(whole))))
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Text<'de>, M::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Text(None))
    }
}

/// Whole number of at least zero, written as a number or a string. Any other value is `None`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number(pub(crate) Option<u64>);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Number, D::Error> {
        let text = Text::deserialize(from)?;
        let text = text.as_str().trim();
        // `12.0` is a whole number too, to servers that know only one kind of number.
        let whole = text.strip_suffix(".0").unwrap_or(text);
        Ok(Number(whole.parse().ok()))
    }
}

impl Number {
    /// The value as a number of tokens. `None`: it is unknown or implausibly large.
    pub(crate) fn tokens(self) -> Option<u64> {
        let sane = self.0.filter(|tokens| *tokens <= TOKENS_MAX);
        if sane != self.0 {
            tracing::warn!(tokens = self.0, "the provider reports an impossible number of tokens");
        }
        sane
    }
}

/// Shares of a number of tokens, in the form of `OpenAI`: cached tokens of the input, or reasoning
/// tokens of the output.
#[derive(Debug, Default, Clone, Copy, serde::Deserialize)]
#[serde(default)]
pub(crate) struct TokenDetails {
    pub(crate) cached_tokens: Number,
    pub(crate) reasoning_tokens: Number,
}

/// Limits `part`, a share of `whole`, to `whole`. An unknown `whole` limits nothing; an unknown
/// `part` stays `None`.
pub(crate) fn within(part: Option<u64>, whole: Option<u64>) -> Option<u64> {
    part.map(|part| whole.map_or(part, |whole| part.min(whole)))
}

/// A list of objects, without its elements that are not objects. Any other value becomes an empty
/// list.
#[derive(Debug, Default)]
pub(crate) struct LenientList<T>(pub(crate) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for LenientList<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<LenientList<T>, D::Error> {
        match LenientValue::<T>::deserialize(from)? {
            LenientValue::List(list) => Ok(LenientList(list)),
            LenientValue::Map(_) | LenientValue::Other => Ok(LenientList(Vec::new())),
        }
    }
}

/// An object; any other value becomes `None`.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Object<T>(pub(crate) Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Object<T>, D::Error> {
        match LenientValue::<T>::deserialize(from)? {
            LenientValue::Map(object) => Ok(Object(Some(object))),
            LenientValue::List(_) | LenientValue::Other => Ok(Object(None)),
        }
    }
}

/// JSON value of any type, with `T` parsed from a map, or from each map in a list.
enum LenientValue<T> {
    Map(T),
    List(Vec<T>),
    Other,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for LenientValue<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<LenientValue<T>, D::Error> {
        from.deserialize_any(KindVisitor(PhantomData))
    }
}

struct KindVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for KindVisitor<T> {
    type Value = LenientValue<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<LenientValue<T>, M::Error> {
        T::deserialize(de::value::MapAccessDeserializer::new(map)).map(LenientValue::Map)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<LenientValue<T>, S::Error> {
        let mut list = Vec::new();
        while let Some(Object(element)) = seq.next_element::<Object<T>>()? {
            list.extend(element);
        }
        Ok(LenientValue::List(list))
    }

    fn visit_bool<E>(self, _: bool) -> Result<LenientValue<T>, E> {
        Ok(LenientValue::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<LenientValue<T>, E> {
        Ok(LenientValue::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<LenientValue<T>, E> {
        Ok(LenientValue::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<LenientValue<T>, E> {
        Ok(LenientValue::Other)
    }

    fn visit_str<E>(self, _: &str) -> Result<LenientValue<T>, E> {
        Ok(LenientValue::Other)
    }

    fn visit_unit<E>(self) -> Result<LenientValue<T>, E> {
        Ok(LenientValue::Other)
    }
}

/// Replaces each lone surrogate escape in `json` by U+FFFD. `None`: there is none. Servers that cut
/// text between UTF-16 code units send such halves.
pub(crate) fn replace_surrogates(json: &str) -> Option<String> {
    let unit_at = |at: usize| {
        let digits = json.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut mended = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = json[at..].find('\\') {
        at += found;
        match (unit_at(at), unit_at(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => at += 12,
            (Some(0xd800..=0xdfff), _) => {
                mended.push_str(&json[copied..at]);
                mended.push_str("\\ufffd");
                at += 6;
                copied = at;
            }
            // Skips the escaped character, which may be a backslash or several bytes.
            _ => at += 1 + json[at + 1..].chars().next().map_or(0, char::len_utf8),
        }
    }
    mended.push_str(&json[copied..]);
    (copied > 0).then_some(mended)
}
