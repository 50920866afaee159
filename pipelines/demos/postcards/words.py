"""The words of the captions; a more common word is listed more than once."""

from __future__ import annotations

NOUNS = {
    "sailboat": ("sailboat", "sailboat", "sailboat", "boat", "sailing boat"),
    "lighthouse": ("lighthouse",),
    "cactus": ("cactus", "cactus", "cactus", "saguaro cactus"),
    "house": ("house", "house", "house", "cottage", "cabin"),
    "pine trees": ("pine trees", "pine trees", "pines", "fir trees", "trees"),
    "hot-air balloon": ("hot-air balloon", "hot air balloon", "balloon"),
}
PLACE_NOUNS = {
    "ocean": ("the ocean", "the ocean", "the sea", "an ocean"),
    "mountains": ("the mountains", "mountains", "the mountains"),
    "desert": ("the desert", "a desert", "the desert"),
    "meadow": ("a meadow", "the meadow", "a meadow"),
    "city": ("the city", "a city", "the city skyline"),
    "snowy hills": ("snowy hills", "the snowy hills", "hills in the snow"),
}
STANDING_AT = {
    "ocean": ("on the ocean", "by the ocean", "on the sea", "by the sea", "at the ocean"),
    "mountains": ("in the mountains", "in front of the mountains", "before the mountains"),
    "desert": ("in the desert", "in a desert", "in the desert"),
    "meadow": ("in a meadow", "in the meadow", "on a meadow"),
    "city": ("in the city", "in a city", "in front of the city"),
    "snowy hills": ("in the snowy hills", "in snowy hills", "on snowy hills", "in the snow"),
}
TIME_NOUNS = {
    "sunrise": ("sunrise", "sunrise", "dawn", "morning"),
    "noon": ("noon", "noon", "midday", "day"),
    "sunset": ("sunset", "sunset", "dusk", "evening"),
    "night": ("night", "night", "moonlit night"),
}
TIME_PHRASES = {
    "sunrise": ("at sunrise", "at sunrise", "at dawn", "in the morning"),
    "noon": ("at noon", "at noon", "at midday", "in daylight"),
    "sunset": ("at sunset", "at sunset", "at dusk", "in the evening"),
    "night": ("at night", "at night", "by moonlight", "in the moonlight"),
}
WEATHER_PHRASES = {
    ("clear", "day"): ("under a clear sky", "with a clear sky", "clear sky", "in clear weather", "cloudless sky"),
    ("clear", "night"): ("under the stars", "with stars", "starry sky", "under a starry sky", "under a clear sky"),
    ("clouds", "day"): ("with clouds", "under a cloudy sky", "cloudy sky", "with clouds in the sky", "under clouds"),
    ("clouds", "night"): ("with clouds", "under a cloudy sky", "cloudy sky", "with clouds in the sky", "under clouds"),
}
PRAISE = ("beautiful", "peaceful", "lovely", "quiet", "pretty")
MEDIA = (
    "a postcard of",
    "postcard of",
    "a painting of",
    "an illustration of",
    "a picture of",
    "a poster of",
    "travel poster of",
)
