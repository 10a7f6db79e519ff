"""What each verb does, in one readable function each."""
