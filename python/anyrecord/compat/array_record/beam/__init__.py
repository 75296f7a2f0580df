"""The place of `array_record.beam`. Its transforms are not here yet: this package has no names and no modules.

Until they are, use the original's Beam transforms; the files that they write are read here.
"""
