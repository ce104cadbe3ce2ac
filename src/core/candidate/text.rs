//! The text of a program. It may be made when somebody reads it first: what is committed packed need not be unpacked for a
//! listing, nor in the process of another candidate.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

/// A text that all its clones share.
#[derive(Clone)]
pub struct Text(Arc<LazyLock<String, Box<dyn FnOnce() -> String + Send>>>);

impl Text {
    /// A text that is made when it is read first.
    pub fn of(make: impl FnOnce() -> String + Send + 'static) -> Self {
        Text(Arc::new(LazyLock::new(Box::new(make))))
    }
}

impl<T: Into<String>> From<T> for Text {
    fn from(text: T) -> Self {
        let text = text.into();
        Text::of(|| text)
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || **self == **other
    }
}

impl Eq for Text {}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_text_is_made_once_when_it_is_read() {
        let made = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&made);
        let text = Text::of(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            "ret;".into()
        });
        let other = text.clone();
        assert_eq!((&text, made.load(Ordering::Relaxed)), (&other, 0), "the same one is not read");
        assert_eq!((&*text, &*other), ("ret;", "ret;"));
        assert_eq!((Text::from("ret;"), made.load(Ordering::Relaxed)), (other, 1));
        assert_ne!(text, Text::from("bra L;"));
    }
}
