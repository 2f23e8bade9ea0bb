"""Turn texts into tables of token ids, by words or sub-words, and read pre-trained word vectors."""
